"""G3: what must hold exactly, without a reference."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from autotuner.build.loaded_variant import is_sticky, status_text
from autotuner.gate.bench import Tensors
from autotuner.gate.cases import Case
from autotuner.gate.launching import Failed, Launching
from autotuner.values.verdict import Verdict

REPEATS = 8
SUMS_FLOOR = 2.0**-19
"""How far two float32 sums of the same terms may differ by their order, relative to the sum."""

OUTSIDE_DOMAIN = 1
"""The status AT_OUTSIDE_DOMAIN of kernels/abi/variant.h."""


def invariant_case(launching: Launching) -> Case:
    """Ragged, with more keys than queries, and several heads and batches."""
    return launching.matrix.case((2, 3, 113, 203), label="invariant ")


def repeat(launching: Launching) -> None:
    """The same input gives the same bits whatever ran before, the workspace holds, or threads run on."""
    for case in (invariant_case(launching), launching.matrix.case((1, 8, 257, 257), label="invariant ")):
        alike(launching, "G3.repeat", case, REPEATS)


def alike(launching: Launching, code: str, case: Case, launches: int) -> None:
    """So many launches on one input, disturbed in between, give the same bits."""
    tensors = launching.tensors(case)
    first = launching.launch(case, tensors)
    for turn in range(1, launches):
        launching.say(f"{code} launch {turn + 1}")
        launching.bench.disturb(turn)
        detail = f"launch {turn + 1} differs from the first on the same input"
        launching.require_equal(code, case, launching.launch(case, tensors), first, detail)


def scale_v(launching: Launching) -> None:
    """4 V gives exactly 4 O: only an exponent changes, but for outputs so small that they lose digits."""
    case = invariant_case(launching)
    q, k, v = launching.tensors(case)
    got, want = launching.launch(case, (q, k, 4 * v)), 4 * launching.launch(case, (q, k, v))
    numbers = torch.finfo(v.dtype)
    subnormal = (want.abs() <= 4 * numbers.tiny) & ((got - want).abs() <= 4 * numbers.smallest_normal * numbers.eps)
    detail = "4 V does not give exactly 4 O"
    launching.require_equal("G3.scale_v", case, torch.where(subnormal, want, got), want, detail)


def permute(launching: Launching) -> None:
    """Permuting the (batch, head) slices permutes O, nothing else."""
    case = invariant_case(launching)
    q, k, v = launching.tensors(case)
    order = torch.randperm(6, generator=torch.Generator().manual_seed(launching.seed(1)))

    def permuted(tensor: Tensor) -> Tensor:
        return tensor.flatten(0, 1)[order].view(tensor.shape)

    got = launching.launch(case, (permuted(q), permuted(k), permuted(v)))
    detail = "permuting the (batch, head) slices does not permute O"
    launching.require_equal("G3.permute", case, got, permuted(launching.launch(case, (q, k, v))), detail)


def future(launching: Launching) -> None:
    """Causal: keys and values at positions >= t do not reach rows < t. Large finite values, not NaN."""
    case = launching.matrix.case((2, 3, 203, 203), label="invariant ")
    q, k, v = launching.tensors(case)
    want = launching.launch(case, (q, k, v))
    shortest = min(case.problem.seq_q, case.problem.seq_k)
    for t in {shortest // 2, max(1, shortest // 3 // 32 * 32)}:
        later_k, later_v = k.clone(), v.clone()
        later_k[:, :, t:] *= -40
        later_v[:, :, t:] *= 1000
        got = launching.launch(case, (q, later_k, later_v))
        detail = f"changing keys and values from position {t} on changes earlier rows"
        launching.require_equal("G3.future", case, got[:, :, :t], want[:, :, :t], detail)


def ones(launching: Launching) -> None:
    """V = 1 gives O = 1: the weights of each row sum to 1."""
    case = invariant_case(launching)
    q, k, v = launching.tensors(case)
    output = launching.launch(case, (q, k, torch.ones_like(v))).double()
    worst = float((output - 1).abs().max())
    if not worst <= torch.finfo(v.dtype).eps + SUMS_FLOOR:
        detail = f"V = 1 gives O up to {worst:.3g} away from 1: the weights do not sum to 1"
        raise Failed(Verdict.INCORRECT, "G3.ones", detail, case)


def offset(launching: Launching) -> None:
    """Tensors a little past an aligned address give the same bits."""
    case = invariant_case(launching)
    tensors = launching.tensors(case)
    want = launching.launch(case, tensors)
    for shift in (16, 32):
        detail = f"tensors {shift} bytes past an aligned address give another result"
        launching.require_equal("G3.offset", case, launching.launch(case, tensors, shift), want, detail)


def misaligned(launching: Launching) -> None:
    """Misaligned and non-contiguous tensors are refused before anything is launched."""
    case = invariant_case(launching)
    place = launching.bench.place
    q, k, v = launching.tensors(case)
    turned = place(q).transpose(2, 3).contiguous().transpose(2, 3)
    for tensors in ((place(q, 4), place(k), place(v)), (turned, place(k), place(v))):
        launch = partial(launching.bench.launch, case.problem, *tensors, place(torch.empty_like(q)))
        try:
            launching.in_time(case, launch)
        except ValueError:
            continue
        raise Failed(Verdict.INCORRECT, "G3.misaligned", "a misaligned or strided input was not refused", case)
    launching.bench.traces((), ())


def domain(launching: Launching) -> None:
    """Lengths that the variant does not serve are refused before anything is launched."""
    for problem in launching.matrix.outside():
        other = Case(name=f"outside the domain {problem}", problem=problem)
        tensors: Tensors = launching.tensors(other)
        q, k, v = (launching.bench.place(tensor) for tensor in tensors)
        o = launching.bench.place(torch.full_like(q, float("nan")))
        status = launching.in_time(other, partial(launching.bench.launch, problem, q, k, v, o))
        if is_sticky(status):
            launching.require_ok(status, other)
        written = not bool(torch.isnan(o).all())
        launching.bench.traces((), ())
        if status != OUTSIDE_DOMAIN or written:
            detail = f"{problem} is outside what the variant serves, but was answered ({status_text(status)})"
            raise Failed(Verdict.INCORRECT, "G3.domain", detail, other)
