"""T0 to T3: how far an output may be from the float64 reference. The bounds come from rounding, not from taste.

With r the reference, r^ = r rounded to the dtype and P the low-precision emulation (attention.py):
  T0  every element is finite
  T1  max |o - r|        <= f max |P - r| + 2 max |((r^ + 0.3) - 0.3) - r^| + floor1 max |r|
  T2  rho(o)             <= f rho(P) + floor2,    rho(x) = max over rows of max |x - r| / max |r|
  T3  ||o - r|| / ||r||  <= f ||P - r|| / ||r|| + floor3,    for each (batch, head)
f = 2 and floor1 = 0 in a 16-bit dtype: T1 is the rule of FlashAttention's own tests, except that its second term is at
least an ulp of max |r|. It vanishes for outputs such as 0.75, where the emulation may happen to be exact as well. In
float32 the error is that of the sums, which differs with their order; f = 4 is the least power of two that accepts
every right implementation of tests/mutants/right, and floor1 covers rows that see one key, where P is exact.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from autotuner import config
from autotuner.attention import DTYPES, emulation, inputs, reference
from autotuner.gate.cases import Case
from autotuner.outcome import CaseErrors

ROW_FLOOR = {"float32": 2.0**-20, "float16": 2.0**-9, "bfloat16": 2.0**-6}
HEAD_FLOOR = {"float32": 2.0**-22, "float16": 2.0**-12, "bfloat16": 2.0**-9}
LARGEST_FLOOR = {"float32": 2.0**-21, "float16": 0.0, "bfloat16": 0.0}
ULP = {"float32": 0.0, "float16": 2.0**-10, "bfloat16": 2.0**-7}
FACTOR = {"float32": 4.0, "float16": 2.0, "bfloat16": 2.0}
FORMAT = "4"


class Truth(NamedTuple):
    """A case's inputs, its reference and its tolerances."""

    q: Tensor
    k: Tensor
    v: Tensor
    reference: Tensor
    max_abs_tol: float
    row_rel_tol: float
    head_rel_tol: float


def _row_rel(error: Tensor, reference: Tensor) -> Tensor:
    """max |error| / max |reference| a row; (batch, heads, seq_q)."""
    largest: Tensor = reference.abs().amax(-1).clamp_min(torch.finfo(torch.float64).tiny)
    return error.abs().amax(-1) / largest


def _head_rel(error: Tensor, reference: Tensor) -> Tensor:
    """||error|| / ||reference|| a (batch, head)."""
    norm: Tensor = torch.linalg.vector_norm(reference, dim=(-1, -2)).clamp_min(torch.finfo(torch.float64).tiny)
    distance: Tensor = torch.linalg.vector_norm(error, dim=(-1, -2))
    return distance / norm


Truths = Callable[[Case, int], Truth]
"""The truth of a case with a seed, computed or remembered."""


def compute_truth(case: Case, seed: int, device: str = "cpu") -> Truth:
    """Draws the inputs and computes the reference and the tolerances there; the inputs are the same on every device.

    Raises ValueError when the case is degenerate.
    """
    problem = case.problem
    dtype = DTYPES[problem.dtype]
    q, k, v = (tensor.to(device) for tensor in inputs(problem, case.distribution, seed))
    exact = reference(problem, q, k, v)
    if not torch.isfinite(exact).all() or not exact.abs().max() > 0:
        raise ValueError(f"case {case.name}: the reference is not finite or all zero")
    error = emulation(problem, q, k, v) - exact
    rounded = exact.to(dtype)
    slack = 2 * (((rounded + 0.3) - 0.3).double() - rounded.double()).abs().max()
    largest = exact.abs().max()
    slack = torch.maximum(slack, ULP[problem.dtype] * largest) + LARGEST_FLOOR[problem.dtype] * largest
    factor = FACTOR[problem.dtype]
    return Truth(
        q,
        k,
        v,
        exact,
        max_abs_tol=float(factor * error.abs().max() + slack),
        row_rel_tol=float(factor * _row_rel(error, exact).max() + ROW_FLOOR[problem.dtype]),
        head_rel_tol=float(factor * _head_rel(error, exact).max() + HEAD_FLOOR[problem.dtype]),
    )


def truth(case: Case, seed: int) -> Truth:
    """The case's truth from the cache, computed on first use. The cache is keyed by everything that determines it."""
    identity = f"{FORMAT} {torch.__version__} {case.model_dump_json()} {seed}"
    path = config.cache_dir() / "references" / f"{hashlib.sha256(identity.encode()).hexdigest()[:32]}.pt"
    try:
        return Truth(*torch.load(path, weights_only=True, mmap=True))
    except (OSError, RuntimeError, EOFError, TypeError, ValueError):
        found = compute_truth(case, seed)
        _save(found, path)
        return found


def _save(found: Truth, path: Path) -> None:
    """Writes through a private name, so that a reader never sees half a file. Where nothing can be written, each use
    computes anew."""
    private = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(tuple(found), private)
        private.replace(path)
    except (OSError, RuntimeError):
        private.unlink(missing_ok=True)


def _position(flat: int, shape: torch.Size) -> tuple[int, ...]:
    return tuple(int(i) for i in torch.unravel_index(torch.tensor(flat), shape))


def judge(output: Tensor, expected: Truth) -> CaseErrors:
    """Errors of an output, in float64, against the truth of its case. All numbers leave the device in one transfer."""
    exact = expected.reference
    error = output.double() - exact
    size = error.abs()
    rows, heads = _row_rel(error, exact), _head_rel(error, exact)
    finite = torch.isfinite(error)
    good = finite.all(-1) & (rows <= expected.row_rel_tol) & (size.amax(-1) <= expected.max_abs_tol)
    worst = torch.nan_to_num(size, nan=float("inf")).argmax()
    bad = ~good.flatten()
    numbers = (
        finite.logical_not().sum(),
        bad.sum(),
        worst,
        bad.to(torch.uint8).argmax(),
        size.max(),
        rows.max(),
        heads.max(),
        error.mean(),
        output.flatten()[worst],
        exact.flatten()[worst],
    )
    nonfinite, bad_count, worst_at, first_bad, *measured = torch.stack([x.double() for x in numbers]).tolist()
    max_abs, row_rel, head_rel, bias, worst_value, worst_reference = measured
    return CaseErrors(
        nonfinite=int(nonfinite),
        max_abs=max_abs,
        max_abs_tol=expected.max_abs_tol,
        row_rel=row_rel,
        row_rel_tol=expected.row_rel_tol,
        head_rel=head_rel,
        head_rel_tol=expected.head_rel_tol,
        bias=bias,
        worst_index=_position(int(worst_at), error.shape),
        worst_value=worst_value,
        worst_reference=worst_reference,
        first_bad_row=_position(int(first_bad), rows.shape) if bad_count else None,
        bad_rows=bad_count / good.numel(),
    )
