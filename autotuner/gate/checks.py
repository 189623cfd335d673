"""The checks on every artifact that are no invariants: G0, G1, G2, G5 and G6."""

from __future__ import annotations

import contextlib
import re
import signal
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING

from autotuner.forge.family import ABI_VERSION, Effect
from autotuner.forge.loaded_variant import Reported
from autotuner.gate.bench import StreamBench
from autotuner.gate.cases import Case
from autotuner.gate.check import RACE, Check, Failed, Unavailable, check, rules
from autotuner.gate.invariants import alike, alike_for, tuned_cases
from autotuner.values import codes
from autotuner.values.gate_report import ReportedIdentity
from autotuner.values.verdict import Fault, Meaning, Verdict

if TYPE_CHECKING:
    from autotuner.gate.launching import Launching

SEARCH_S = 5.0
"""Seconds that the search for a claim of kernel.toml in the machine code may take."""
SOAK_LAUNCHES = 250
FINALIST_LAUNCHES = 1000
FLOATS_CHANGED = Fault(
    verdict=Verdict.CORRUPTING,
    code="G3.float_env",
    detail="a launch left the rounding mode, the handling of subnormals or the stack of x87 changed",
)
BATCH_S = 0.05
"""Seconds of launches between two disturbances there, about."""
MOST_IN_BATCH = 4096


@check(
    "G0.conduct",
    "the host's code calls mathematics, memory and threads alone, keeps no state, and runs nothing when it is loaded",
    "a static variable, a clock, or a library",
    verdict=Verdict.BUILD_FAILED,
    of_machine_code=True,
)
def conduct(launching: Launching) -> str | None:
    """A note where kernel.toml gives a reason to do more."""
    if launching.evidence.unread is not None:
        raise Unavailable(launching.evidence.unread)
    return launching.claims.state


@check(
    "G0.identity",
    "the loaded library is the one that was asked for: build id and every macro",
    "a stale or foreign library was loaded under this name",
    verdict=Verdict.BUILD_FAILED,
)
def identity(launching: Launching) -> None:
    """By what the library, whose file is the one that was built, says of itself."""
    artifact = launching.artifact
    reported = launching.evidence.identity()
    launching.reported = ReportedIdentity(
        abi_version=reported.abi_version, build_id=reported.build_id, macros=reported.macros
    )
    expected = Reported(ABI_VERSION, reported.call_size, artifact.digest, artifact.macros)
    for field, want, got in zip(Reported._fields, expected, reported, strict=True):
        if want != got:
            raise Failed(f"the loaded library reports {field} {got}, requested was {want}")


@check(
    "G0.effect",
    "the machine code shows that the parameters took effect",
    "a parameter that the source ignores, or a path that the compiler did not take",
    verdict=Verdict.BUILD_FAILED,
    required=False,
    of_machine_code=True,
)
def effect(launching: Launching) -> None:
    if not launching.claims.effects:
        return
    code = launching.evidence.disassembly()
    if code is None:
        raise Unavailable("no disassembler was at hand when it was built")
    broken = broken_effect(launching.claims.effects, code)
    if broken is not None:
        raise Failed(broken)


def broken_effect(effects: Sequence[Effect], code: str) -> str | None:
    """The first claim that does not hold in the machine code, in words."""
    for effect in effects:
        try:
            with _time_limit(SEARCH_S):
                lacks = effect.contains is not None and not re.search(effect.contains, code)
                contains = effect.lacks is not None and re.search(effect.lacks, code)
        except TimeoutError:
            return (
                f"kernel.toml: the search for /{effect.contains or effect.lacks}/ did not end within {SEARCH_S:g} s:"
                " write the expression without a repetition inside a repetition"
            )
        if lacks:
            return f"the machine code lacks /{effect.contains}/: {effect.reason}"
        if contains:
            return f"the machine code contains /{effect.lacks}/: {effect.reason}"
    return None


@contextlib.contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Raises TimeoutError in the block once the time is over. Python looks at signals within a search, too; a thread
    other than the main one has no such limit."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def over(_signal: int, _frame: FrameType | None) -> None:
        raise TimeoutError

    handler = signal.signal(signal.SIGALRM, over)
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, left, interval)
        signal.signal(signal.SIGALRM, handler)


@check(
    "G1.smoke",
    "one small launch succeeds, writes all of its output and nothing else",
    faults={
        "G1.domain": Meaning("the variant serves the problems that are tuned"),
        codes.UNWRITTEN: Meaning(
            "every element of the output is written (it is poisoned with NaN before the launch)",
            "rows or columns that no thread writes, or an arithmetic that gives NaN even on ordinary input",
        ),
        "G3.float_env": Meaning("the launch leaves rounding, subnormals and x87's stack as they were"),
    },
)
def smoke(launching: Launching) -> None:
    refused = next((p for p in launching.conditions.problems if not launching.claims.serve(p)), None)
    if refused is not None:
        detail = f"{refused} is outside the domain that kernel.toml gives: {launching.claims.domain}"
        raise Failed(detail, code="G1.domain", verdict=Verdict.LAUNCH_FAILED)
    case = launching.matrix.case(launching.op.cases.smoke)
    right = launching.truth(case)
    outputs = launching.launch(case, right.inputs)
    for number, (output, expected) in enumerate(zip(outputs, right.outputs, strict=True)):
        unwritten = ~output.isfinite() & expected.reference.isfinite()
        if unwritten.any():
            count = int(unwritten.sum())
            where = launching.extent(number, unwritten, output)
            detail = (
                f"{count} of {output.numel()} elements of the poisoned output are not finite after the launch:"
                f" {where.affected}"
            )
            stale, hint = launching.explained(case, right, outputs)
            raise Failed(detail, case, code=codes.UNWRITTEN, differs=where, stale=stale, hint=hint)


@check(codes.QUICK, "the quick cases are within tolerance", faults=rules("G2", "quick cases"))
def quick(launching: Launching) -> None:
    for index, case in enumerate(launching.matrix.quick()):
        launching.judge("G2", case, index)


@check(
    "G2.baseline",
    "the output is not bitwise that of one of the baselines",
    "the variant, or a library that it calls, answers by calling the baseline",
    verdict=Verdict.IMPOSSIBLE,
)
def copied(launching: Launching) -> str | None:
    """Bitwise equality with a baseline is no coincidence."""
    from autotuner.ops.tensors import all_same_bits

    case = launching.matrix.copied()
    outputs = launching.launch(case, launching.inputs(case))
    answers = launching.evidence.baselines(case, launching.seed(0))
    same = next((name for name, answer in answers.items() if all_same_bits(outputs, answer)), None)
    if same is None:
        return None
    why = launching.claims.policy.equals_baseline or launching.op.equals_baseline(case.problem)
    detail = f"the output is bitwise that of the baseline {same}: " + (why or "it is hardly the variant's own")
    if why is not None:
        return detail
    raise Failed(detail, case)


@check("G5.matrix", "the full matrix is within tolerance", faults=rules("G5", "full matrix"))
def matrix(launching: Launching) -> None:
    """Two of the four seeds a case, and the tuned lengths with less work."""
    for case, place in launching.matrix.thorough(launching.tile, launching.conditions.problems):
        launching.judge("G5", case, place)


def _soak(launches: int, launching: Launching) -> None:
    """A race that shows in 1 % of launches is seen with 92 % probability in 250 launches, one that shows in 0.3 % with
    95 % in 1000.

    Some races need a full device: where launches are quick, the tuned problems are soaked too.
    """
    soaked = partial(alike, launching, launches=launches)
    bench, op = launching.bench, launching.op
    with bench.traffic():
        soaked(launching.matrix.case(op.cases.soak, label="soak "))
        for case in tuned_cases(launching, "soak") if isinstance(bench, StreamBench) else ():
            soaked(case)


def _many(seconds: float, launching: Launching) -> str:
    """As many launches as fit in `seconds` on the tuned problems themselves; a note of how many on each."""
    problems = launching.conditions.problems
    done: list[str] = []
    with launching.bench.traffic():
        for problem in problems:
            case = Case(name=f"many {problem}", problem=problem, distribution=launching.op.ordinary)
            count = alike_for(launching, case, seconds / len(problems), BATCH_S, MOST_IN_BATCH)
            done.append(f"{count} on {problem}")
    return "launches: " + "; ".join(done)


def soak(finalist: bool = False) -> Check:
    """G6: many launches under disturbance, all bitwise equal."""
    launches = FINALIST_LAUNCHES if finalist else SOAK_LAUNCHES
    asserts = "hundreds of launches under memory traffic give the same bits"
    return Check(codes.SOAK, asserts, partial(_soak, launches), RACE, Verdict.NONDETERMINISTIC, required=False)


def many(seconds: float) -> Check:
    """G6 for the variant that is exported: as many launches as fit in `seconds`, all bitwise equal."""
    asserts = "as many launches on the tuned problems as fit in some seconds give the same bits"
    cause = "a race that shows rarely, or a count or a clock that the variant keeps"
    return Check(codes.MANY, asserts, partial(_many, seconds), cause, Verdict.NONDETERMINISTIC, required=False)
