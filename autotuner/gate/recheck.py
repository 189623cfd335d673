"""G7: after timing, on the very buffers that were timed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from autotuner.gate.check import RACE
from autotuner.ops import op_of
from autotuner.values import codes
from autotuner.values.gate_report import Tolerance
from autotuner.values.outcome import Artifact
from autotuner.values.problem import Problem
from autotuner.values.verdict import Fault, Meaning, Verdict

if TYPE_CHECKING:
    from autotuner.gate.tolerance import Leeway, Truth
    from autotuner.ops.tensors import Tensors

AUDIT = "G7.audit"
MEANINGS = {
    codes.RECHECK: Meaning("the timed buffers are as a right variant leaves them"),
    codes.GUARD: Meaning(
        "nothing was written around the timed buffers, others and timers call none of the variant's code, and it has"
        " neither run nor changed Python",
        "a write past a tensor's end that depends on the shape; a clock that it replaced; a timer that runs on",
    ),
    "G7.inputs": Meaning(
        "the inputs are unchanged after the timing",
        "a write through an input pointer that the first launches did not show",
    ),
    "G7.output": Meaning(
        "the output of the last timed launch is still right",
        "right on the first launches and wrong later: kept state, a race, or a cached result",
    ),
    "G7.strays": Meaning(
        "every timed sample left the outputs that its inputs make, in the order of the calls",
        f"a result kept from an earlier call, work that goes on after the call, or {RACE}",
    ),
    AUDIT: Meaning(
        "the latency does not depend on earlier calls, and with fresh inputs each time every output is right",
        "a result kept from an earlier call",
    ),
    "G7.rest": Meaning(
        "nothing goes on beside or after the timed calls",
        "a thread or a kernel that works on, on CPUs that are not the variant's, or slows what is timed next",
    ),
}


class Timed(NamedTuple):
    """What a race left behind."""

    inputs: Tensors
    """Of the last timed forward."""
    outputs: Tensors
    """Of the last timed forward."""
    damage: str | None
    """Which guard band around the timed buffers was written, in words."""
    strays: str | None
    """Which other timed buffer is not what it must be, in words: an input that changed, an output unlike the last."""
    again: Callable[[], None]
    """Runs the timed forward once more, untimed, on the same buffers."""
    busy: str | None = None
    """What goes on although all calls have returned, in words."""


JudgeTimed = Callable[[Timed], Fault | None]
"""G7, of what a race left behind."""
JudgeFresh = Callable[["Tensors", "Tensors"], Fault | None]
"""Whether for these inputs, which are like the ordinary ones, these outputs are right."""


class Judges(NamedTuple):
    """What a track asks when it has timed a variant."""

    timed: JudgeTimed
    fresh: JudgeFresh


JudgesOf = Callable[[Artifact], Judges]
"""By the tolerance of the artifact's implementation."""


def judge_fresh(
    problem: Problem,
    inputs: Tensors,
    outputs: Tensors,
    tolerance: Tolerance,
    known: Sequence[Leeway] = (),
    threads: int = 1,
) -> Fault | None:
    """A fault when the outputs are not those of the inputs, which an audit made.

    `known`: how far the outputs may be off on the inputs that these are like. What is within that is right; else, or
    where nothing is known, it is worked out for these. `threads`: of torch, where the problem is large.
    """
    from autotuner.gate.cases import Case
    from autotuner.gate.tolerance import broken, shared_out, truth_like, truth_of

    case = Case(name="audited", problem=problem, distribution=op_of(problem).ordinary)
    with shared_out(problem, threads):
        if known and broken(outputs, truth_like(case, inputs, known), tolerance) is None:
            return None
        errors = broken(outputs, truth_of(case, inputs), tolerance)
    if errors is None:
        return None
    detail = f"with fresh inputs before every forward an output breaks {errors.failed_rule}"
    return Fault(verdict=Verdict.INCORRECT, code=AUDIT, detail=detail)


def recheck(problem: Problem, timed: Timed, expected: Truth, fresh: Truth, tolerance: Tolerance) -> Fault | None:
    """Guards and inputs are what they were, the last outputs are right, and new inputs in place, with the outputs
    poisoned, give the new right outputs when the timed forward runs once more. The inputs are restored."""
    from autotuner.ops.tensors import overwrite, poison

    fault = harm(problem, timed.damage, expected.inputs, timed.inputs, timed.busy)
    if fault is not None:
        return fault
    fault = _output_fault(problem, timed, expected, tolerance, "an output of the timed run")
    if fault is not None:
        return fault
    if timed.strays is not None:
        return Fault(verdict=Verdict.NONDETERMINISTIC, code="G7.strays", detail=timed.strays)
    overwrite(timed.inputs, fresh.inputs)
    poison(timed.outputs)
    timed.again()
    fault = _output_fault(problem, timed, fresh, tolerance, "with new inputs in the timed buffers, the output")
    overwrite(timed.inputs, expected.inputs)
    return fault


def harm(problem: Problem, damage: str | None, before: Tensors, after: Tensors, busy: str | None) -> Fault | None:
    """What was written that must not be, or goes on. `before`, `after`: the inputs of a forward."""
    from autotuner.ops.tensors import same_bits

    if damage is not None:
        return Fault(verdict=Verdict.CORRUPTING, code=codes.GUARD, detail=damage)
    for given, then, now in zip(op_of(problem).inputs(problem), before, after, strict=True):
        if not same_bits(then, now):
            detail = f"{given.name} changed while it was timed"
            return Fault(verdict=Verdict.CORRUPTING, code="G7.inputs", detail=detail)
    return restless(busy) if busy is not None else None


def restless(what: str) -> Fault:
    """Something goes on beside or after the timed calls: `what`, in words."""
    return Fault(verdict=Verdict.IMPOSSIBLE, code="G7.rest", detail=what)


def _output_fault(problem: Problem, timed: Timed, expected: Truth, tolerance: Tolerance, what: str) -> Fault | None:
    from autotuner.gate.cases import measured
    from autotuner.gate.tolerance import broken_in

    errors = broken_in(measured(problem), timed.outputs, expected, tolerance)
    if errors is None:
        return None
    detail = f"{what} breaks {errors.failed_rule}: {errors.worst_ratio:.3g} times the tolerance"
    return Fault(verdict=Verdict.INCORRECT, code="G7.output", detail=detail)
