"""T0 to T3: how far an output may be from the float64 reference. The bounds come from rounding, not from taste.

With r the reference, r^ = r rounded to the dtype and P the low-precision emulation (attention.py):
  T0  every element is finite
  T1  max |o - r|        <= f max |P - r| + 2 max |((r^ + 0.3) - 0.3) - r^| + floor1 max |r|
  T2  rho(o)             <= f rho(P) + floor2,    rho(x) = max over rows of max |x - r| / max |r|
  T3  ||o - r|| / ||r||  <= f ||P - r|| / ||r|| + floor3,    for each (batch, head)
f = 2 and floor1 = 0 in a 16-bit dtype: T1 is the rule of FlashAttention's own tests, except that its second term is at
least an ulp of max |r|. It vanishes for outputs such as 0.75, where the emulation may happen to be exact as well. In
float32 the error is that of the sums, which differs with their order. In the rows where that shows most P stands for
eight orders and the worst counts, because that of one is a matter of luck. f = 4 leaves room for roundings that no
order has, such as those of a base-2 softmax; floor1 covers rows that see one key, where P is exact.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from autotuner.gate.cases import Case
from autotuner.ops.sdpa.attention import DTYPES, emulation, inputs, reference, reordered, sdpa, sensitive_rows
from autotuner.ops.sdpa.problem import Problem
from autotuner.values import config
from autotuner.values.gate_policy import Tolerance
from autotuner.values.gate_report import CaseErrors, Extent

ROW_FLOOR = {"float32": 2.0**-20, "float16": 2.0**-9, "bfloat16": 2.0**-6}
HEAD_FLOOR = {"float32": 2.0**-22, "float16": 2.0**-12, "bfloat16": 2.0**-9}
LARGEST_FLOOR = {"float32": 2.0**-21, "float16": 0.0, "bfloat16": 0.0}
ULP = {"float32": 0.0, "float16": 2.0**-10, "bfloat16": 2.0**-7}
FACTOR = {"float32": 4.0, "float16": 2.0, "bfloat16": 2.0}
FORMAT = "7"


class Truth(NamedTuple):
    """A case's inputs, its reference and its tolerances."""

    q: Tensor
    k: Tensor
    v: Tensor
    reference: Tensor
    row_scale: Tensor
    """max |reference| of each row; (batch, heads, seq_q)."""
    head_scale: Tensor
    """||reference|| of each (batch, head)."""
    max_abs_tol: float
    row_rel_tol: float
    head_rel_tol: float
    flash_max_abs: float
    """Largest error of torch's flash attention on these inputs; NaN where it does not take them."""
    ulp: float
    """An ulp of the largest |reference| in the dtype, or more: what rounding the output may cost at most."""


Truths = Callable[[Case, int], Truth]
"""The truth of a case with a seed, computed or remembered."""


def _largest_and_norms(exact: Tensor) -> tuple[Tensor, Tensor]:
    """max |exact| a row and ||exact|| a (batch, head), none of them 0."""
    tiny = torch.finfo(torch.float64).tiny
    rows: Tensor = exact.abs().amax(-1).clamp_min(tiny)
    heads: Tensor = torch.linalg.vector_norm(exact, dim=(-1, -2)).clamp_min(tiny)
    return rows, heads


def emulated_errors(problem: Problem, q: Tensor, k: Tensor, v: Tensor, exact: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """max |P - r|, rho(P) and the largest ||P - r|| / ||r||; in float32 the worst of several P in the rows where the
    order of the sums decides."""
    error = emulation(problem, q, k, v) - exact
    largest, norms = error.abs().amax(-1), torch.linalg.vector_norm(error, dim=-1)
    if problem.dtype == "float32":
        rows = sensitive_rows(problem, q, k, v, exact)
        at = rows.unbind(1)
        for again in reordered(problem, q, k, v, rows):
            error = again - exact[at]
            largest[at] = torch.maximum(largest[at], error.abs().amax(-1))
            norms[at] = torch.maximum(norms[at], torch.linalg.vector_norm(error, dim=-1))
    scales, heads = _largest_and_norms(exact)
    return largest.max(), (largest / scales).max(), (torch.linalg.vector_norm(norms, dim=-1) / heads).max()


def _flash_error(problem: Problem, q: Tensor, k: Tensor, v: Tensor, exact: Tensor) -> float:
    try:
        with warnings.catch_warnings(action="ignore"):
            return float((sdpa(problem, "flash")(q, k, v).double() - exact).abs().max())
    except RuntimeError:
        return float("nan")


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
    rows, heads = _largest_and_norms(exact)
    largest_error, row_error, head_error = emulated_errors(problem, q, k, v, exact)
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
        rows,
        heads,
        max_abs_tol=float(factor * largest_error + slack),
        row_rel_tol=float(factor * row_error + ROW_FLOOR[problem.dtype]),
        head_rel_tol=float(factor * head_error + HEAD_FLOOR[problem.dtype]),
        flash_max_abs=_flash_error(problem, q, k, v, exact),
        ulp=float(torch.finfo(dtype).eps * largest),
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


class Bounds(NamedTuple):
    """The tolerances of a case as a family has them."""

    max_abs: float
    row_rel: float
    head_rel: float

    @classmethod
    def of(cls, expected: Truth, tolerance: Tolerance) -> Bounds:
        """The gate's own, times the family's number; strict: no more than twice the error of flash and an ulp."""
        largest = expected.max_abs_tol
        if tolerance.strict and expected.flash_max_abs == expected.flash_max_abs:
            largest = min(largest, 2 * expected.flash_max_abs + expected.ulp)
        times = tolerance.times
        return cls(times * largest, times * expected.row_rel_tol, times * expected.head_rel_tol)


def _position(flat: int, shape: torch.Size) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(flat, shape))  # torch's own imports 500 modules first


OWN = Tolerance()
"""The gate's own tolerances, as they are."""


def judge(output: Tensor, expected: Truth, tolerance: Tolerance = OWN) -> CaseErrors:
    """Errors of an output, in float64, against the truth of its case. All numbers leave the device in one transfer."""
    exact, bounds = expected.reference, Bounds.of(expected, tolerance)
    error = output.double() - exact
    size = error.abs()
    largest = size.amax(-1)
    rows = largest / expected.row_scale
    heads = torch.linalg.vector_norm(error, dim=(-1, -2)) / expected.head_scale
    bad = ~((rows <= bounds.row_rel) & (largest <= bounds.max_abs)).flatten()
    worst = torch.nan_to_num(size, nan=float("inf")).argmax()
    numbers = (
        torch.isfinite(error).logical_not().sum(),
        bad.sum(),
        worst,
        bad.to(torch.uint8).argmax(),
        largest.max(),
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
        max_abs_tol=bounds.max_abs,
        row_rel=row_rel,
        row_rel_tol=bounds.row_rel,
        head_rel=head_rel,
        head_rel_tol=bounds.head_rel,
        bias=bias,
        worst_index=_position(int(worst_at), error.shape),
        worst_value=worst_value,
        worst_reference=worst_reference,
        first_bad_row=_position(int(first_bad), rows.shape) if bad_count else None,
        bad_rows=bad_count / bad.numel(),
        flash_ratio=max_abs / expected.flash_max_abs if expected.flash_max_abs > 0 else None,
    )


def out_of_tolerance(output: Tensor, expected: Truth, errors: CaseErrors, tile: int) -> Extent:
    """Which elements of the output are further from the reference than T1 or T2 allow."""
    size = (output.double() - expected.reference).abs()
    bound = torch.clamp(expected.row_scale.unsqueeze(-1) * errors.row_rel_tol, max=errors.max_abs_tol)
    return extent(~(size <= bound), size, tile)


def extent(affected: Tensor, size: Tensor, tile: int) -> Extent:
    """Where `affected`, (batch, heads, rows, columns), is true, and how large `size` is there; `tile` is in rows."""
    affected, size = affected.cpu(), size.double().cpu()
    rows = affected.any(-1)
    positions = rows.any(0).any(0).nonzero().flatten()
    tiles = torch.nn.functional.pad(rows, (0, -rows.shape[-1] % tile)).unflatten(-1, (-1, tile)).any(-1)
    largest = float(torch.nan_to_num(size[affected], nan=float("inf")).max()) if affected.any() else 0.0
    return Extent(
        rows=int(rows.sum()),
        of_rows=rows.numel(),
        heads=int(rows.any(-1).sum()),
        of_heads=rows.shape[0] * rows.shape[1],
        columns=tuple(affected.flatten(0, 2).any(0).nonzero().flatten().tolist()),
        of_columns=affected.shape[-1],
        tile=tile,
        rows_of_tile=tuple(sorted(set((positions % tile).tolist()))),
        tiles=int(tiles.sum()),
        largest=largest,
    )
