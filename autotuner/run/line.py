"""The line: the stages of one variant in the process that does them. The gate and the races are driven here, and here
alone; the device offers where they run.

What imports torch is imported where it is used: the driver, which makes a factory of lines, does without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from autotuner.devices import DEVICES, versions
from autotuner.forge.build import build
from autotuner.forge.family import Family
from autotuner.forge.languages import language_of, python
from autotuner.forge.languages.language import Language
from autotuner.forge.loaded_variant import LoadedVariant
from autotuner.forge.toolchain import Toolchain
from autotuner.gate import checks, gate, sanitizer
from autotuner.gate.cases import Case, Matrix, demanding, measured, served
from autotuner.gate.check import Check, Subject
from autotuner.gate.recheck import Judges, JudgesOf, Timed, judge_fresh, recheck
from autotuner.gate.sanitizer import sanitized, small_cases
from autotuner.ops import ahead, op_of
from autotuner.ops.op import OWN
from autotuner.race.arms import Tracks
from autotuner.race.calibrate import time_baselines
from autotuner.values.conditions import Conditions
from autotuner.values.gate_report import GatePolicy, GateReport
from autotuner.values.outcome import Artifact, BackendTiming, Calibration, Device, NamedFunction, Say
from autotuner.values.problem import Problem
from autotuner.values.variant import Variant
from autotuner.values.verdict import Fault, Verdict

if TYPE_CHECKING:
    from autotuner.devices.process import DeviceProcess
    from autotuner.gate.launching import Launching
    from autotuner.gate.tolerance import Leeway
    from autotuner.ops.tensors import Tensors

GateLevel = Literal["again", "soak", "finalist", "many", "memory", "sanitize"]
"""Levels of the gate after the first five: its quick cases once more, G6, G6 with as many launches as a finalist gets,
G6 with as many as fit in some seconds, G8's check of memory, all of G8."""

SANITIZERS: Mapping[str, Sequence[sanitizer.SanitizerCheck]] = {
    "memory": (sanitizer.MEMORY,),
    "sanitize": sanitizer.LEVELS,
}
"""The checks of G8 that a level has."""


class Passed(NamedTuple):
    """A report, without a fault but where a sanitizer is to explain one, and the level to append to it."""

    report: GateReport
    level: GateLevel
    seconds: float = 0.0
    """How long it launches, at the level "many"."""


class Line(Protocol):
    """Four stages. A variant's fault is a returned value; exceptions are ours."""

    imports: bool
    """Whether a module of somebody else's is imported with it."""

    def calibrate(self, conditions: Conditions, say: Say) -> Calibration:
        """Measures every baseline against the reference, those that are right on the problems, and what the device can
        do at most; names the fastest of them for each problem."""

    def build(self, variant: Variant, conditions: Conditions) -> Artifact | Fault:
        """The variant's artifact, or why there is none."""

    def compile_first(self, conditions: Conditions, artifacts: Sequence[Artifact], say: Say) -> None:
        """Imports what the pinned baselines call, and calls functions of Python, baselines and variants, once for all
        that they will be called for, so that what compiles does so before the process is caged."""

    def references(self, conditions: Conditions, artifact: Artifact | None) -> list[tuple[Case, int]]:
        """The cases and seeds whose truths will be asked for, and kept, where an artifact is judged, or races, or where
        baselines are measured, of which none is pinned yet."""

    def check(self, artifact: Artifact, conditions: Conditions, say: Say, passed: Passed | None = None) -> GateReport:
        """The gate, G0 to G5; or, after a pass of that, one more level, appended to its report."""

    def tracks(self, conditions: Conditions) -> Tracks:
        """The problems, ready for races in this process. race/race.py runs them."""


MakeLine = Callable[[], Line]
"""Makes the line in whichever process will use it. Picklable."""


@dataclass(frozen=True)
class LineFactory:
    """Makes the line in whichever process will use it. Picklable."""

    device: Device
    toolchain: Toolchain
    family: Family
    more: tuple[Check, ...] = ()
    """Checks that the gate does after its own."""
    baselines: tuple[NamedFunction, ...] = ()
    """Functions that the user named as baselines."""

    def __call__(self) -> GatedLine:
        """Raises InfrastructureError when the device does not work, and InputError where a baseline is another one."""
        opened = DEVICES[self.device.backend].open(self.toolchain, self.device)
        _ = self.family.op  # found now: an op of another package may lie where a cage lets nobody look
        from autotuner.ops import functions

        functions_of = self.family.table(self.device.backend).values()
        imports = bool(self.baselines) or any(each.python for each in functions_of)
        with functions.settings_kept(f"a module of {self.family.document.family} or of a baseline, imported,", imports):
            theirs = python.imported(self.family, self.device.backend, self.baselines)  # for the same reason
        functions.take(theirs)
        made = GatedLine(self.family, self.toolchain, opened, self.more)
        made.named, made.imports = self.baselines, imports
        return made


def _checks(passed: Passed) -> tuple[Check, ...]:
    """Those of a level."""
    if passed.level == "again":
        return checks.smoke, checks.quick
    if passed.level == "many":
        return (checks.many(passed.seconds),)
    return (checks.soak(finalist=passed.level == "finalist"),)


class GatedLine:
    """The line on a device: every variant goes through the gate."""

    named: tuple[NamedFunction, ...] = ()
    """The user's baselines."""
    imports = False

    def __init__(
        self, family: Family, toolchain: Toolchain, device: DeviceProcess, more: tuple[Check, ...] = ()
    ) -> None:
        self._family, self._toolchain, self._device, self._more = family, toolchain, device, more
        self._answers = lru_cache(maxsize=16)(self._baseline_answers)
        self._prepared: tuple[object, Tracks] | None = None

    def calibrate(self, conditions: Conditions, say: Say) -> Calibration:
        with ahead.limited(self._device.torch_device, conditions.seconds):
            return self._calibrated(conditions, say)

    def _calibrated(self, conditions: Conditions, say: Say) -> Calibration:
        from autotuner.gate.references import names, reference_checks, sound

        device = self._device
        device.prepare(conditions)
        known = names(conditions.compiled_for, device.torch_device)
        seen = reference_checks(conditions.problems, known, device.truth, conditions.seeds[0], conditions.threads, say)
        baselines = sound(seen)
        timings: list[BackendTiming] = []
        refused: dict[str, str] = {}
        pinned: list[str] = []
        rivals: list[str] = []
        tracks = self.tracks(conditions)
        for track in tracks:
            say(f"timing the baselines on {track.problem}")
            here, others, near = time_baselines(track, baselines, device.calibration_rounds)
            timings += here
            refused |= {name: f"{name} does not take {track.problem}: {why}" for name, why in others.items()}
            pinned.append(min(here, key=lambda each: each.median_us).backend)
            rivals += near
        device.draw(conditions, say)
        say("measuring what the device can do at most")
        return Calibration(
            baselines=tuple(pinned),
            timings=tuple(timings),
            refused=refused,
            rivals=tuple(dict.fromkeys(rivals)),
            references=seen,
            versions=versions() | {each.name: each.digest for each in self.named},
            ceilings=device.ceilings(conditions),
        )

    def build(self, variant: Variant, conditions: Conditions) -> Artifact | Fault:
        return build(self._family, variant, conditions.compiled_for, self._toolchain)

    def tracks(self, conditions: Conditions) -> Tracks:
        """The tracks of the last conditions are kept: a race, and the audit after it, have the same, and so have all
        variants that a process judges."""
        self._device.prepare(conditions)
        wanted = (conditions.problems, conditions.cache, conditions.seeds, conditions.threads)
        if self._prepared is None or self._prepared[0] != wanted:
            self._prepared = None  # frees the memory first
            problems = conditions.problems
            self._prepared = wanted, [self._device.track(conditions, p, self._judges(conditions, p)) for p in problems]
        return self._prepared[1]

    def _judges(self, conditions: Conditions, problem: Problem) -> JudgesOf:
        known: list[Leeway] = []
        """How far the problem's outputs may be off, once G7 was asked."""

        def timed(left: Timed, policy: GatePolicy) -> Fault | None:
            """G7."""
            cases = (measured(problem), demanding(problem, policy.omitted))
            expected, fresh = (self._device.truth(case, conditions.seeds[at]) for at, case in enumerate(cases))
            known[:] = [output.leeway for output in expected.outputs]
            return recheck(problem, left, expected, fresh, policy.tolerance)

        def judges(artifact: Artifact) -> Judges:
            policy = self._family.claims(artifact.variant, problem).policy
            fresh = partial(judge_fresh, problem, tolerance=policy.tolerance, known=known, threads=conditions.threads)
            return Judges(partial(timed, policy=policy), fresh)

        return judges

    # The gate ---------------------------------------------------------------------------------------------------

    def references(self, conditions: Conditions, artifact: Artifact | None) -> list[tuple[Case, int]]:
        from autotuner.gate.references import cases_of_all
        from autotuner.gate.tolerance import ALIKE_SEED, alike

        asked: list[tuple[Case, int]] = []
        if artifact is not None:
            matrix = self._matrix(artifact, conditions)
            tile = matrix.op.cases.tile(artifact.variant.parameters, artifact.resources)
            asked += matrix.asked(tile, conditions.problems)
        elif not conditions.baselines:
            asked += [(case, 0) for case in cases_of_all(conditions.compiled_for)]
        timed = [case for each in conditions.problems for case in ((measured(each), 0), (demanding(each), 1))]
        asked += timed
        first = (alike(case) for case, _ in timed)  # that others wait for
        drawn = [(case, conditions.seeds[place % len(conditions.seeds)]) for case, place in asked]
        return [*((case, ALIKE_SEED) for case in first if case is not None), *drawn]

    def compile_first(self, conditions: Conditions, artifacts: Sequence[Artifact], say: Say) -> None:
        op = op_of(conditions.compiled_for)
        for problem, name in zip(conditions.problems, conditions.baselines, strict=False):  # none before they are timed
            op.baselines[name].forward(problem)
        variants = [each for each in artifacts if each.interpreted]
        if not variants and not OWN:
            return
        from autotuner.ops import functions

        say("build")  # with its deadline; what breaks here is a function's doing
        self._device.prepare(conditions)
        where, threads = self._device.torch_device, conditions.threads
        copied = [Matrix(conditions.compiled_for).copied().problem] if artifacts else []
        due = conditions.baselines or OWN  # none is pinned before the calibration
        own: list[functions.Call] = [(each.own, {}) for name in due if (each := OWN.get(name)) and each.own]
        with functions.settings_kept(f"one of the baselines {', '.join(due)}"):
            functions.compile_first(own, conditions.problems, copied, where, threads)
        for artifact in variants:
            matrix, between = self._matrix(artifact, conditions), (op.cases.between, op.cases.between_large)
            asked = [case.problem for case, _ in self.references(conditions, artifact)]
            asked += [each.own for each in map(matrix.neighbours, between) if each.own is not None]
            called = python.call_of(self._family, artifact.variant)
            functions.compile_first([called], conditions.problems, dict.fromkeys(asked), where, threads)

    def _matrix(self, artifact: Artifact, conditions: Conditions) -> Matrix:
        like = conditions.compiled_for
        claims = self._family.claims(artifact.variant, like)
        return Matrix(like, like.fixed_in(artifact.macros), claims, conditions.seeds)

    def check(self, artifact: Artifact, conditions: Conditions, say: Say, passed: Passed | None = None) -> GateReport:
        self._device.prepare(conditions)
        matrix = self._matrix(artifact, conditions)
        if passed is not None and passed.level in SANITIZERS:
            failed = str(passed.report.fault and passed.report.fault.case)
            near = [case.problem for case, _ in self.references(conditions, artifact) if case.name in failed]
            few = (each for each in near if each.flops < 1 << 28)  # a tool may take a hundred times as long
            cases = served((*few, *small_cases(conditions.compiled_for, artifact)), matrix.claims)
            tool, levels = self._device.sanitizer(self._family), SANITIZERS[passed.level]
            return passed.report.extended(*sanitized(tool, artifact, cases, say, levels))
        subject = Subject(conditions.compiled_for, self._device.streams, matrix.bounded)
        claims, threads = matrix.claims, artifact.variant.parameters.get("THREADS", 1) != 1
        toolchain = self._toolchain.of(self._language(artifact).name)
        misconduct = unread = None
        if passed is None and artifact.path:
            folder = Path(artifact.path).parent
            try:
                misconduct = toolchain.misconduct(folder, threads, claims.state is not None)
            except FileNotFoundError as error:
                unread = f"{error.filename} is not there"
        if misconduct is not None:  # loaded, it might run
            return gate.not_loaded(artifact, claims, subject, checks.conduct, misconduct)
        try:
            variant = LoadedVariant(artifact)
        except ImportError as error:
            return gate.not_loaded(artifact, claims, subject, checks.identity, f"the library cannot be loaded: {error}")
        launching = self._launching(artifact, variant, matrix, conditions, say, unread)
        if passed is None:
            report = gate.run(launching, subject, self._more)
        else:
            report = passed.report.extended(*gate.in_order(launching, _checks(passed)))
        return report if report.fault is None else self._settled(report, report.fault)

    def _language(self, artifact: Artifact) -> Language:
        return language_of(self._family.implementation(artifact.variant.backend, artifact.variant.impl))

    def _launching(
        self,
        artifact: Artifact,
        variant: LoadedVariant,
        matrix: Matrix,
        conditions: Conditions,
        say: Say,
        unread: str | None = None,
    ) -> Launching:
        from autotuner.gate.launching import Evidence, Launching

        bench = self._device.bench(variant, matrix)
        disassembly = partial(self._toolchain.of(self._language(artifact).name).disassembly, Path(artifact.path))
        floats, answers = variant.changes_floats, partial(self._answers, pinned=conditions.baselines)
        evidence = Evidence(self._device.truth, variant.identity, disassembly, answers, floats, unread)
        return Launching(artifact, matrix, bench, conditions, evidence, say)

    def _baseline_answers(self, case: Case, seed: int, pinned: tuple[str, ...]) -> Mapping[str, Tensors]:
        from autotuner.gate.references import answers, names, without_nan

        inputs = self._device.truth(case, seed).inputs
        here = names(case.problem, self._device.torch_device)
        known = [name for name in here if name not in OWN or name in pinned]  # others may have to be compiled
        found = answers(case.problem, without_nan(inputs), known)
        return {name: answer for name, answer in found if answer is not None}

    def _settled(self, report: GateReport, fault: Fault) -> GateReport:
        """The report on a variant that failed, once the device is idle. One that does not come to rest makes the
        variant hung, and ends the process."""
        if fault.verdict in (Verdict.CRASHED, Verdict.HUNG) or self._device.settle():
            return report
        detail = f"{fault.code}: {fault.detail}; its work goes on after the launch has ended"
        hung = fault.model_copy(update={"verdict": Verdict.HUNG, "detail": detail})
        return report.model_copy(update={"fault": hung})
