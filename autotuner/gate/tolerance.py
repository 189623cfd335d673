"""T0 to T3: how far an output may be from the float64 reference. The bounds come from rounding, not from taste.

With r the reference, r^ = r rounded to the dtype and P the low-precision emulation (the op says both):
  T0  every element is finite, or what r is where r is infinite or NaN
  T1  max |o - r|        <= f max |P - r| + 2 max |((r^ + 0.3) - 0.3) - r^| + floor1 max |r|
  T2  rho(o)             <= f rho(P) + floor2,    rho(x) = max over rows of max |x - r| / max |r|
  T3  ||o - r|| / ||r||  <= f ||P - r|| / ||r|| + floor3,    for each slice
f = 2 and floor1 = 0 in a 16-bit dtype: T1 is the rule of FlashAttention's own tests, except that its second term is at
least an ulp of max |r|. It vanishes for outputs such as 0.75, where the emulation may happen to be exact as well. In
float32 the error is that of the sums, which differs with their order. In the rows where that shows most P stands for
several orders, and a softmax of base 2, and the worst counts: that of one is a matter of luck. f = 4 leaves room for
roundings that none of them has; floor1 covers rows that see one key, where P is exact.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from autotuner.gate import kept
from autotuner.gate.cases import Case
from autotuner.ops import op_of
from autotuner.ops.op import Output
from autotuner.ops.tensors import DTYPES, Tensors, moved, on_threads
from autotuner.values import config
from autotuner.values.gate_report import CaseErrors, Extent, Tolerance
from autotuner.values.problem import Problem

ROW_FLOOR = {"float32": 2.0**-20, "float16": 2.0**-9, "bfloat16": 2.0**-6}
SLICE_FLOOR = {"float32": 2.0**-22, "float16": 2.0**-12, "bfloat16": 2.0**-9}
LARGEST_FLOOR = {"float32": 2.0**-21, "float16": 0.0, "bfloat16": 0.0}
ULP = {"float32": 0.0, "float16": 2.0**-10, "bfloat16": 2.0**-7}
FACTOR = {"float32": 4.0, "float16": 2.0, "bfloat16": 2.0}
SHARED_OUT = 4_000_000_000
"""Operations of a case from which on its reference is worth more than one thread."""
FORMAT = "16"
ALIKE, ALIKE_SEED, CLEAR = "alike", 0, 0.6
"""The name of such a case; the seed of its inputs, which no variant is given; the share of its tolerances that counts
for others: those of inputs that are drawn alike were up to 1.34 times as wide as each other."""


class Degenerate(ValueError):
    """Raised for a case whose reference is nowhere a number other than 0: nothing says how far an output may be off."""


class Expected(NamedTuple):
    """What an output must be, and how far it may be from that."""

    row: int
    """Trailing dimensions of a row."""
    slice: int
    """Trailing dimensions of a slice."""
    reference: Tensor
    """In float64, of the output's shape."""
    row_scale: Tensor
    """max |reference| of each row; (slices, rows)."""
    slice_scale: Tensor
    """||reference|| of each slice; (slices,)."""
    max_abs_tol: float
    row_rel_tol: float
    slice_rel_tol: float
    peer_max_abs: float
    """Largest error of the op's peer among the baselines on these inputs; NaN where it does not take them."""
    ulp: float
    """An ulp of the largest |reference| in the dtype, or more: what rounding the output may cost at most."""
    others: Sequence[Sequence[Any]] = ()
    """The names of the op's other emulations, each with the three tolerances that it gives."""

    @property
    def leeway(self) -> Leeway:
        """How far the output may be off, without what it must be."""
        return self[5:]


Leeway = tuple[Any, ...]
"""What `Expected` has behind the scales."""


class Truth(NamedTuple):
    """A case's inputs, and what each output must be."""

    inputs: Tensors
    outputs: tuple[Expected, ...]


Truths = Callable[[Case, int], Truth]
"""The truth of a case with a seed, computed or remembered."""


def by_rows(tensor: Tensor, row: int, slice_: int) -> Tensor:
    """The tensor as (slices, rows of a slice, elements of a row)."""
    shape = tensor.shape
    elements = int(np.prod(shape[len(shape) - row :]))
    rows = int(np.prod(shape[len(shape) - slice_ : len(shape) - row]))
    return tensor.reshape(-1, rows, elements)


def _difference(output: Tensor, exact: Tensor) -> Tensor:
    """By how much the output is off: by nothing where it is infinite or NaN as it must be."""
    return torch.where((output == exact) | (output.isnan() & exact.isnan()), 0.0, output - exact)


def _finite(exact: Tensor) -> Tensor:
    """The numbers, 0 in place of what is infinite or NaN: an op may ask for that where nothing is to be computed."""
    return torch.where(exact.isfinite(), exact, 0.0)


def _error(low: Tensor, exact: Tensor) -> Tensor:
    """By how much a computation in low precision is off where there is a number to be off from."""
    return torch.where(exact.isfinite(), low - exact, 0.0)


def _scales(exact: Tensor, unit: float) -> tuple[Tensor, Tensor]:
    """max |exact| a row and ||exact|| a slice, as if no row were smaller than `unit`, none of them 0; `exact` is by
    rows."""
    least = max(unit, torch.finfo(torch.float64).tiny)
    rows: Tensor = exact.abs().amax(-1).clamp_min(least)
    slices: Tensor = torch.linalg.vector_norm(exact.abs().clamp_min(unit), dim=(-1, -2)).clamp_min(least)
    return rows, slices


class _Emulated(NamedTuple):
    """The error of the emulation of one output, row by row: the worst of several orders where there are several."""

    largest: Tensor
    """(slices, rows)."""
    norms: Tensor
    """(slices, rows)."""


Again = Iterator[tuple[int, tuple[Tensor, ...], Tensor]]


def _emulated(case: Case, inputs: Tensors, exact: Tensors) -> dict[str | None, list[_Emulated]]:
    """Of each output, by the name of the emulation, None for the op's own."""
    op = op_of(case.problem)
    tensors = op.tensors()
    own = []
    for output, low, high in zip(op.outputs(case.problem), tensors.emulation(case.problem, inputs), exact, strict=True):
        error = by_rows(_error(low, high), output.row, output.slice)
        own.append(_Emulated(error.abs().amax(-1), torch.linalg.vector_norm(error, dim=-1)))
    worst = partial(_worst, op.outputs(case.problem), exact)
    found: dict[str | None, list[_Emulated]] = {None: worst(own, tensors.reordered(case.problem, inputs, exact))}
    for name in op.emulations:
        found[name] = worst(own, getattr(tensors, name)(case.problem, inputs, exact))
    return found


def _worst(outputs: Sequence[Output], exact: Tensors, own: Sequence[_Emulated], others: Again) -> list[_Emulated]:
    """Row by row the worst of one emulation and others of some rows."""
    found = [_Emulated(*(each.clone() for each in one)) for one in own]
    for number, at, again in others:
        shape = exact[number].shape[: exact[number].dim() - outputs[number].row]
        largest, norms = (each.view(shape) for each in found[number])
        error = _error(again, exact[number][at]).reshape(*(at[0].shape if at else ()), -1)
        for worst, each in ((largest, error.abs().amax(-1)), (norms, torch.linalg.vector_norm(error, dim=-1))):
            worst[at] = torch.maximum(worst[at], each)
    return found


def _peer_errors(case: Case, inputs: Tensors, exact: Tensors) -> list[float]:
    """The largest error of each output of the op's peer; NaN where it does not take the case."""
    tensors = op_of(case.problem).tensors()
    peer = tensors.BASELINES[tensors.PEER]
    try:
        with warnings.catch_warnings(action="ignore"):
            answers = peer.answer(case.problem, inputs)
    except RuntimeError:
        return [float("nan")] * len(exact)
    return [float(_error(low.double(), high).abs().max()) for low, high in zip(answers, exact, strict=True)]


def compute_truth(
    case: Case, seed: int, device: str = "cpu", threads: int | None = None, by_others: bool = False
) -> Truth:
    """Draws the inputs and computes the reference and the tolerances there; the inputs are the same on every device.
    `threads`: for a large case, all CPUs unless it says fewer. `by_others`: with the tolerances of what is alike.

    Raises Degenerate.
    """
    tensors = op_of(case.problem).tensors()
    drawn = tensors.inputs(case.problem, case.distribution, seed)
    with shared_out(case.problem, threads or len(os.sched_getaffinity(0))):
        inputs = moved(drawn, device)
        known = by_others and alike(case) is not None
        return _alike_truth(case, inputs) if known else truth_of(case, inputs)


def shared_out(problem: Problem, threads: int) -> AbstractContextManager[None]:
    """torch computes on so many threads in the block where the problem is large, else on one."""
    return on_threads(threads if problem.flops > SHARED_OUT else 1)


def alike(case: Case) -> Case | None:
    """A case, no larger, on whose inputs outputs are as far off: what a large one's tolerances are made of takes two
    thirds of its time on a CPU."""
    op = op_of(case.problem)
    found = op.cases.alike(case.problem) if case.distribution in (op.ordinary, op.cases.demanding) else None
    if found is None or case.name == ALIKE or case.problem.flops <= SHARED_OUT:
        return None
    return Case(name=ALIKE, problem=found, distribution=case.distribution)


def _known(case: Case) -> Iterator[Leeway]:
    """How far its outputs may be off by the one that is alike, which may be drawn up by another process meanwhile."""
    smaller = alike(case)
    assert smaller is not None
    yield from (each.leeway for each in truth(smaller, ALIKE_SEED).outputs)


def _alike_truth(case: Case, inputs: Tensors) -> Truth:
    """With CLEAR of the tolerances of inputs that are alike: what is within these is right by its own."""
    found = truth_like(case, inputs, _known(case))
    peers = _peer_errors(case, inputs, tuple(each.reference for each in found.outputs))
    return Truth(inputs, tuple(_stricter(*each) for each in zip(found.outputs, peers, strict=True)))


def _stricter(due: Expected, peer: float) -> Expected:
    return due._replace(
        max_abs_tol=CLEAR * due.max_abs_tol,
        row_rel_tol=CLEAR * due.row_rel_tol,
        slice_rel_tol=CLEAR * due.slice_rel_tol,
        peer_max_abs=peer,
        others=tuple((name, *(CLEAR * each for each in of)) for name, *of in due.others),
    )


def its_own(case: Case, found: Truth) -> Truth:
    """The same with the tolerances of its own inputs: by them alone a case is lost."""
    return found if alike(case) is None else truth_of(case, found.inputs)


def truth_of(case: Case, inputs: Tensors) -> Truth:
    """The truth of inputs that were drawn elsewhere. Raises Degenerate."""
    op = op_of(case.problem)
    exact = _exact(case, inputs)
    emulated, peers = _emulated(case, inputs, exact), _peer_errors(case, inputs, exact)
    by_output = [dict(zip(emulated, each, strict=True)) for each in zip(*emulated.values(), strict=True)]
    outputs = zip(op.outputs(case.problem), exact, by_output, peers, strict=True)
    return Truth(inputs, tuple(_expected(*each) for each in outputs))


def truth_like(case: Case, inputs: Tensors, known: Iterable[Leeway]) -> Truth:
    """The truth of inputs that were drawn elsewhere, with the tolerances of others that are alike: it takes a third of
    the time, most of which goes into what the tolerances are made of. Raises Degenerate."""
    exact = _exact(case, inputs)
    found = []
    for output, reference, of in zip(op_of(case.problem).outputs(case.problem), exact, known, strict=True):
        rows, slices = _scales(by_rows(_finite(reference), output.row, output.slice), output.unit)
        found.append(Expected(output.row, output.slice, reference, rows, slices, *of))
    return Truth(inputs, tuple(found))


def _exact(case: Case, inputs: Tensors) -> Tensors:
    exact = op_of(case.problem).tensors().reference(case.problem, inputs)
    if not all(_finite(each).any() for each in exact):
        raise Degenerate(f"case {case.name}: the reference is nowhere a number other than 0")
    return exact


def _expected(output: Output, exact: Tensor, emulated: dict[str | None, _Emulated], peer: float) -> Expected:
    dtype, sizes = output.dtype, _finite(exact)
    rows, slices = _scales(by_rows(sizes, output.row, output.slice), output.unit)
    rounded = sizes.to(DTYPES[dtype])
    slack = 2 * (((rounded + 0.3) - 0.3).double() - rounded.double()).abs().max()
    largest = sizes.abs().max()
    slack = torch.maximum(slack, ULP[dtype] * largest) + LARGEST_FLOOR[dtype] * largest
    factor = FACTOR[dtype]

    def tolerances(of: _Emulated) -> tuple[float, float, float]:
        row_error = (of.largest / rows).max()
        slice_error = (torch.linalg.vector_norm(of.norms, dim=-1) / slices).max()
        return (
            float(factor * of.largest.max() + slack),
            float(factor * row_error + ROW_FLOOR[dtype]),
            float(factor * slice_error + SLICE_FLOOR[dtype]),
        )

    ulp = float(torch.finfo(DTYPES[dtype]).eps * largest)
    found = {name: tolerances(each) for name, each in emulated.items()}
    own = found.pop(None)
    others = tuple((name, *each) for name, each in found.items())
    return Expected(output.row, output.slice, exact, rows, slices, *own, peer, ulp, others)


def truth(case: Case, seed: int, threads: int | None = None) -> Truth:
    """The case's truth from the cache, computed on first use. `threads`: as above."""
    path = kept_at(case, seed)
    try:
        inputs, outputs = kept.read(path)
        with contextlib.suppress(OSError):  # a cache that can be read alone serves all the same
            os.utime(path)  # used now: what is pruned is what was used longest ago
        return Truth(tuple(inputs), tuple(Expected(*each) for each in outputs))
    except (OSError, RuntimeError, KeyError, TypeError, ValueError):
        found = compute_truth(case, seed, threads=threads, by_others=True)
        _save(found, path)
        return found


def kept_at(case: Case, seed: int) -> Path:
    """Where the cache keeps a truth: by everything that determines it."""
    identity = f"{FORMAT} {torch.__version__} {op_of(case.problem).digest} {case.model_dump_json()} {seed}"
    return config.cache_dir() / "references" / f"{hashlib.sha256(identity.encode()).hexdigest()[:32]}.truth"


def _save(found: Truth, path: Path) -> None:
    """Writes through a private name, so that a reader never sees half a file. Where nothing can be written, each use
    computes anew."""
    private = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        kept.write(private, found)
        private.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            private.unlink(missing_ok=True)


def _position(flat: int, shape: torch.Size) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(flat, shape))  # torch's own imports 500 modules first


OWN = Tolerance()
"""The gate's own tolerances, as they are."""


def judge(output: Tensor, expected: Expected, tolerance: Tolerance = OWN) -> CaseErrors:
    """Errors of an output, in float64, against what it must be. All numbers leave the device in one transfer.

    The bounds are the gate's own, or those of the emulation that is named, times the family's number; strict: no more
    than twice the error of the peer and an ulp.
    """
    exact, times = expected.reference, tolerance.times
    own = (expected.max_abs_tol, expected.row_rel_tol, expected.slice_rel_tol)
    named = {None: own, **{name: each for name, *each in expected.others}}
    most, row_most, slice_most = named[tolerance.emulation]
    if tolerance.strict and expected.peer_max_abs == expected.peer_max_abs:
        most = min(most, 2 * expected.peer_max_abs + expected.ulp)
    max_abs_tol, row_rel_tol = times * most, times * row_most
    error = by_rows(_difference(output.double(), exact), expected.row, expected.slice)
    size = error.abs()
    largest = size.amax(-1)
    rows = largest / expected.row_scale
    slices = torch.linalg.vector_norm(error, dim=(-1, -2)) / expected.slice_scale
    bad = ~((rows <= row_rel_tol) & (largest <= max_abs_tol)).flatten()
    worst = torch.nan_to_num(size, nan=float("inf")).argmax()
    numbers = (
        torch.isfinite(error).logical_not().sum(),
        bad.sum(),
        worst,
        bad.to(torch.uint8).argmax(),
        largest.max(),
        rows.max(),
        slices.max(),
        error.mean(),
        output.flatten()[worst],
        exact.flatten()[worst],
    )
    nonfinite, bad_count, worst_at, first_bad, *measured = torch.stack([x.double() for x in numbers]).tolist()
    max_abs, row_rel, slice_rel, bias, worst_value, worst_reference = measured
    return CaseErrors(
        nonfinite=int(nonfinite),
        max_abs=max_abs,
        max_abs_tol=max_abs_tol,
        row_rel=row_rel,
        row_rel_tol=row_rel_tol,
        slice_rel=slice_rel,
        slice_rel_tol=times * slice_most,
        bias=bias,
        worst_index=_position(int(worst_at), exact.shape),
        worst_value=worst_value,
        worst_reference=worst_reference,
        first_bad_row=_position(int(first_bad), exact.shape[: exact.dim() - expected.row]) if bad_count else None,
        bad_rows=bad_count / bad.numel(),
        peer_ratio=max_abs / expected.peer_max_abs if expected.peer_max_abs > 0 else None,
    )


def broken(outputs: Tensors, right: Truth, tolerance: Tolerance) -> CaseErrors | None:
    """The errors of the first output that breaks a rule."""
    found = (judge(output, due, tolerance) for output, due in zip(outputs, right.outputs, strict=True))
    return next((errors for errors in found if errors.failed_rule is not None), None)


def broken_in(case: Case, outputs: Tensors, right: Truth, tolerance: Tolerance) -> CaseErrors | None:
    """The same of a case's truth."""
    errors = broken(outputs, right, tolerance)
    own = right if errors is None else its_own(case, right)
    return errors if own is right else broken(outputs, own, tolerance)


def out_of_tolerance(output: Tensor, expected: Expected, errors: CaseErrors, tile: int) -> Extent:
    """Which elements of the output are further from the reference than T1 or T2 allow."""
    size = by_rows(_difference(output.double(), expected.reference).abs(), expected.row, expected.slice)
    bound = torch.clamp(expected.row_scale.unsqueeze(-1) * errors.row_rel_tol, max=errors.max_abs_tol)
    return _extent(~(size <= bound), size, tile)


def extent(output: Output, affected: Tensor, size: Tensor, tile: int) -> Extent:
    """Where `affected`, of the output's shape or a part of it, is true, and its `size` there; `tile` is in rows."""
    return _extent(by_rows(affected, output.row, output.slice), by_rows(size, output.row, output.slice), tile)


def _extent(affected: Tensor, size: Tensor, tile: int) -> Extent:
    """Of (slices, rows, columns)."""
    affected, size = affected.cpu(), size.double().cpu()
    rows = affected.any(-1)
    positions = rows.any(0).nonzero().flatten()
    tiles = torch.nn.functional.pad(rows, (0, -rows.shape[-1] % tile)).unflatten(-1, (-1, tile)).any(-1)
    largest = float(torch.nan_to_num(size[affected], nan=float("inf")).max()) if affected.any() else 0.0
    first = rows.nonzero()[0].tolist() if rows.any() else None
    return Extent(
        rows=int(rows.sum()),
        of_rows=rows.numel(),
        slices=int(rows.any(-1).sum()),
        of_slices=rows.shape[0],
        columns=tuple(affected.flatten(0, 1).any(0).nonzero().flatten().tolist()),
        of_columns=affected.shape[-1],
        tile=tile,
        rows_of_tile=tuple(sorted(set((positions % tile).tolist()))),
        tiles=int(tiles.sum()),
        largest=largest,
        first=None if first is None else (first[0], first[1]),
    )
