"""G3: what must hold exactly, without a reference: of every op, and what an op says of itself. G4: streams and capture,
on a device that has streams."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from autotuner.forge.loaded_variant import OUTSIDE_DOMAIN
from autotuner.gate.bench import DEVICE_BYTES, StreamBench
from autotuner.gate.cases import Case
from autotuner.gate.check import RACE, Check, Failed, Unavailable, check
from autotuner.ops import op_of
from autotuner.ops.op import Input, Invariant, Output, Relation, shape_of
from autotuner.values import codes
from autotuner.values.errors import DeviceFullError
from autotuner.values.verdict import Meaning, Verdict

if TYPE_CHECKING:
    from torch import Tensor

    from autotuner.gate.launching import Launching
    from autotuner.ops.tensors import Tensors

REPEATS = 8
LATER = 1
"""The number of the secret seed from which the inputs of a replay are drawn."""
QUICK_FLOPS = 1 << 32
"""Operations up to which a tuned problem is launched again and again as it is."""


def invariant_case(launching: Launching) -> Case:
    """The op's shape for invariants."""
    return launching.matrix.case(launching.op.cases.invariant, label="invariant ")


def tuned_cases(launching: Launching, label: str) -> Iterator[Case]:
    """The tuned problems themselves, where launches are quick."""
    for problem in launching.conditions.problems:
        if problem.flops <= QUICK_FLOPS:
            yield Case(name=f"{label} {problem}", problem=problem, distribution=launching.op.ordinary)


def alike(launching: Launching, case: Case, launches: int) -> None:
    """Launches on one input, disturbed in between, give the same bits."""
    inputs = launching.inputs(case)
    first = launching.launch(case, inputs)
    for turn in range(1, launches):
        launching.say(f"{launching.check.code} launch {turn + 1}")
        how = launching.bench.disturb(turn)
        detail = f"launch {turn + 1}{how} differs from the first on the same input"
        holding = 0.0 if turn % 2 else math.nan  # as memory that the system has just given
        launching.require_same(case, launching.launch(case, inputs, holding=holding), first, detail)


def alike_for(launching: Launching, case: Case, seconds: float, batch_s: float, most: int) -> int:
    """Launches on one input give the same bits for `seconds`; how many launches there were.

    They come in batches of about `batch_s`, `most` at most. Before each batch the surroundings are disturbed.
    """
    inputs = launching.inputs(case)
    right = launching.launch(case, inputs)
    until = time.monotonic() + seconds
    count, done, turn = 1, 1, 0
    while time.monotonic() < until:
        turn += 1
        launching.say(f"{launching.check.code} launch {done + 1}")
        launching.bench.disturb(turn)
        started = time.monotonic()
        launching.repeat(case, inputs, right, count, done)
        took = time.monotonic() - started
        done += count
        count = min(most, 2 * count if took < batch_s / 2 else max(1, round(count * batch_s / took)))
    launching.bench.disturb(0)  # the CPUs are as they were
    return done


@check(codes.REPEAT, "the same input gives the same bits, whatever ran before", RACE, verdict=Verdict.NONDETERMINISTIC)
def repeat(launching: Launching) -> None:
    """And whatever the workspace holds, threads run on, or launches it."""
    repeated = launching.matrix.case(launching.op.cases.repeated, label="invariant ")
    for case in (invariant_case(launching), repeated):
        alike(launching, case, REPEATS)


def _related(invariant: Invariant, launching: Launching) -> None:
    """The outputs on other inputs are related to those on the case's as the invariant says."""
    case = launching.matrix.case(invariant.shape or launching.op.cases.invariant, label="invariant ")
    inputs = launching.inputs(case)
    plain = launching.launch(case, inputs)
    for relation in invariant.relations(case.problem, inputs, launching.seed(1)):
        before = plain if relation.before is None else launching.launch(case, relation.before)
        _require(launching, case, relation, before)


def _require(launching: Launching, case: Case, relation: Relation, plain: Tensors) -> None:
    from autotuner.ops.tensors import same_bits

    got, want = relation.compared(plain, launching.launch(case, relation.inputs))
    if not relation.within:
        detail = relation.detail
        if not same_bits(got, want) and same_bits(*relation.compared(plain, launching.launch(case, relation.inputs))):
            detail += "; launched once more on the same inputs, it holds"
        launching.require_equal(case, got, want, detail)
        return
    worst = float((got.double() - want.double()).abs().max())
    if not worst <= relation.within:
        raise Failed(f"{relation.detail}; up to {worst:.3g} apart", case)


@check(
    "G3.symmetry",
    "the output follows the exact symmetries of the op, by which a race changes its inputs",
    "arithmetic that is not the same for a number and its negative, or that depends on a slice's place",
)
def symmetry(launching: Launching) -> None:
    from autotuner.ops.tensors import empty_like

    case = invariant_case(launching)
    inputs = launching.inputs(case)
    plain = launching.launch(case, inputs)
    drawn = launching.tensors.symmetry(case.problem, launching.seed(1), 1, inputs[0].device)
    moved, due = (tuple(empty_like(x).unsqueeze(0) for x in tensors) for tensors in (inputs, plain))
    drawn.inputs(inputs, moved)
    drawn.outputs(plain, due)
    got = launching.launch(case, tuple(x[0] for x in moved))
    detail = "a symmetry of the inputs (a permutation, a change of signs) does not give the same one of the output"
    launching.require_same(case, tuple(x + 0 for x in got), tuple(x[0] + 0 for x in due), detail)  # -0 is 0


@check(
    "G3.offset",
    "tensors 16 and 32 bytes past an aligned address give the same bits",
    "an assumption on alignment beyond 16 bytes, or a fixed address",
)
def offset(launching: Launching) -> None:
    case = invariant_case(launching)
    inputs = launching.inputs(case)
    want = launching.launch(case, inputs)
    for shift in (16, 32):
        detail = f"tensors {shift} bytes past an aligned address give another result"
        launching.require_same(case, launching.launch(case, inputs, shift), want, detail)


@check(
    "G3.far",
    "strided tensors so far apart that offsets do not fit in 32 bits give the same bits",
    "an offset, or the product of an index and a stride, in 32 bits",
    applies=lambda subject: any(tensor.strided for tensor in op_of(subject.problem).inputs(subject.problem)),
    required=False,
)
def far(launching: Launching) -> None:
    case, op = invariant_case(launching), launching.op
    inputs = launching.inputs(case)
    want = launching.launch(case, inputs)
    tensors: tuple[Input | Output, ...] = (*op.inputs(case.problem), *op.outputs(case.problem))
    for number, tensor in enumerate(tensors):
        sizes = shape_of(tensor, case.problem)[:-1] if tensor.strided else ()
        for dim in (dim for dim, size in enumerate(sizes) if size > 1):
            try:
                got = launching.launch(case, inputs, far=(number, dim))
            except DeviceFullError as full:
                raise Unavailable(str(full)) from None
            detail = f"{tensor.name} gives another result where offsets along {tensor.shape[dim]} do not fit in 32 bits"
            launching.require_same(case, got, want, detail)


@check(
    "G3.flushed",
    "the output is within tolerance where the caller flushes subnormal numbers to zero",
    "an integer, or bits, that are added, compared or moved as a float",
    applies=lambda subject: not subject.streams,
)
def flushed(launching: Launching) -> None:
    import torch

    case = launching.matrix.case(launching.op.cases.smoke)
    torch.set_flush_denormal(True)
    try:
        is_right = launching.is_right(case)
    finally:
        torch.set_flush_denormal(False)
    if not is_right:
        raise Failed("out of tolerance only where the caller flushes subnormal numbers to zero", case)


def _unfit(launching: Launching, case: Case, first: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Tensors that cannot take the place of the first input, and what is wrong with each."""
    import torch

    from autotuner.ops.tensors import DTYPES

    place, given = launching.bench.place, launching.op.inputs(case.problem)[0]
    other = "float32" if given.dtype != "float32" else "float16"
    yield "misaligned", place(first, 4)
    yield "of another element type", place(first.to(DTYPES[other]))
    yield "on another device", first.to("meta")
    yield "of another shape", place(first[:1] if first.shape[0] > 1 else first.expand(2, *first.shape[1:]).contiguous())
    if first.dim() > 1:
        turned = place(first.transpose(-2, -1).contiguous()).transpose(-2, -1)
        if not _lies_well(turned):
            yield "with rows that are not dense", turned
        wide = place(torch.nn.functional.pad(first, (0, 1)).contiguous())[..., :-1]
        if not _lies_well(wide):
            yield "with rows at odd places", wide


def _lies_well(tensor: Tensor) -> bool:
    """Whether its rows are dense and begin at multiples of 16 bytes. A stride says nothing where there is one of its
    kind: a single row is dense, however it was made."""
    *outer, last = [stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1] or [1]
    return last == 1 and all(stride * tensor.element_size() % 16 == 0 for stride in outer)


@check("G3.misaligned", "an unfit tensor is refused before any launch")
def misaligned(launching: Launching) -> None:
    case = invariant_case(launching)
    first, *rest = launching.inputs(case)
    for what, tensor in _unfit(launching, case, first):
        inputs = (tensor, *(launching.bench.place(other) for other in rest))
        outputs = tuple(launching.bench.place(output) for output in launching.outputs(case, (first, *rest)))
        try:
            launching.in_time(case, partial(launching.bench.launch, case.problem, inputs, outputs))
        except (TypeError, ValueError):
            continue
        raise Failed(f"an input {what} was not refused", case)
    launching.bench.traces((), ())


@check(
    "G3.domain",
    "lengths other than those compiled in are refused before any launch",
    applies=lambda subject: subject.bounded,
)
def domain(launching: Launching) -> None:
    bench = launching.bench
    for other in launching.matrix.refused():
        tensors = launching.inputs(other)
        inputs = tuple(bench.place(tensor) for tensor in tensors)
        outputs = tuple(bench.place(output) for output in launching.outputs(other, tensors))
        status = launching.in_time(other, partial(bench.launch, other.problem, inputs, outputs))
        if bench.errors.is_sticky(status):
            launching.require_ok(status, other)
        written = not all(bool(output.isnan().all()) for output in outputs)
        launching.require_no_traces(other, tensors, inputs)
        if status != OUTSIDE_DOMAIN or written:
            said = bench.errors.text(status)
            raise Failed(f"{other.problem} is outside what the variant serves, but was answered ({said})", other)


@check(
    "G4.stream",
    "all work goes to the caller's stream: inputs that arrive late on it are waited for",
    "a launch on a stream of its own, or on the default stream",
    applies=lambda subject: subject.streams,
)
def stream(launching: Launching) -> None:
    bench, case = launching.bench, invariant_case(launching)
    assert isinstance(bench, StreamBench)
    inputs = launching.inputs(case)
    want = launching.launch(case, inputs)
    detail = "on a side stream whose inputs arrive late the output is another: the launch does not follow its stream"
    status, got = launching.in_time(case, lambda: bench.delayed(case.problem, inputs))
    launching.require_ok(status, case)
    launching.require_same(case, got, want, detail)


@check(
    codes.CAPTURE,
    "a launch can be captured into a graph, and each replay computes anew",
    "work that a graph cannot hold (an allocation, a wait), or an answer or a count kept from an earlier call",
    applies=lambda subject: subject.streams,
)
def capture(launching: Launching) -> None:
    """The tuned problems too, where launches are quick: blocks with several pieces of work may draw them by a count,
    and one that a replay leaves behind is another replay's start."""
    for case in (invariant_case(launching), *tuned_cases(launching, "replayed")):
        _replays(launching, case)


def _replays(launching: Launching, case: Case) -> None:
    bench = launching.bench
    assert isinstance(bench, StreamBench)
    inputs, later = launching.inputs(case), launching.inputs(case, LATER)
    want = launching.launch(case, later)
    try:
        status, replays = launching.in_time(case, lambda: bench.replayed(case.problem, inputs, later))
    except ValueError as error:
        raise Failed(str(error), case, verdict=Verdict.LAUNCH_FAILED) from None
    launching.require_ok(status, case)
    for number, got in enumerate(replays, 1):
        detail = f"replay {number} of a captured launch, with new inputs, gives another output than a launch"
        launching.require_same(case, got, want, detail)


LAUNCHES = 48
"""Of a round that is counted."""
ROUNDS = 4
LEAST_BYTES = 128 << 10
"""A launch that keeps less is not seen. Tensors that Python frees late are less by far."""
LEAST_FILES = 0.5
ALIKE = 2.0
"""What is kept is about the same in every round, within this factor: another program's memory on a GPU is not."""


@check(
    codes.LEAK,
    "launches give back the memory and the files that they take",
    "an allocation at each call, of memory, files or threads, without its end",
    verdict=Verdict.OVER_LIMITS,
    faults={
        codes.DEVICE_LEAK: Meaning("launches give back the device's memory", "an allocation at each call, or others")
    },
)
def leak(launching: Launching) -> None:
    """On one small input, in each of several rounds."""
    case = launching.matrix.case(launching.op.cases.smoke)
    inputs = launching.inputs(case)
    right = launching.launch(case, inputs)
    _kept(launching, case, inputs, right, LAUNCHES)
    rounds = []
    for _ in range(ROUNDS):
        many = _kept(launching, case, inputs, right, LAUNCHES)
        one = _kept(launching, case, inputs, right, 1)
        rounds.append({what: (many[what] - one[what]) / (LAUNCHES - 1) for what in many})
        if not any(_is_much(what, kept) for what, kept in rounds[-1].items()):
            return
    for what in rounds[0]:
        kept = [each[what] for each in rounds]
        if all(_is_much(what, each) for each in kept) and max(kept) <= ALIKE * min(kept):
            code = codes.DEVICE_LEAK if what == DEVICE_BYTES else codes.LEAK
            raise Failed(f"each launch takes {min(kept):,.0f} {what} and never gives them back", case, code)


def _kept(launching: Launching, case: Case, inputs: Tensors, right: Tensors, count: int) -> dict[str, int]:
    """By how much what the process holds has grown after so many launches."""
    before = launching.bench.held()
    try:
        launching.repeat(case, inputs, right, count, 1)
    except Failed as failed:  # what launches do is another check's
        raise Failed(str(failed), case, codes.REPEAT, Verdict.NONDETERMINISTIC) from None
    return {what: now - before[what] for what, now in launching.bench.held().items()}


def _is_much(what: str, kept: float) -> bool:
    return kept >= (LEAST_FILES if what == "open files" else LEAST_BYTES)


def of_op(invariant: Invariant) -> Check:
    """An op's own invariant as a check."""
    return Check(
        invariant.code,
        invariant.asserts,
        partial(_related, invariant),
        invariant.cause,
        applies=lambda subject: invariant.applies(subject.problem),
    )
