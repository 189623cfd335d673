"""The jobs and how each is done. Runs in a process that may die with the variant.

A variant's way takes two: it is built where no device is seen, and judged (check, measure, soak) on the device.
"""

import gc
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Literal, TypeVar

from pydantic import AwareDatetime, Field, PositiveInt

from autotuner.gate import recheck
from autotuner.race.arms import ArmError, Tracks
from autotuner.race.audit import Raced, audit
from autotuner.race.blocks import Throttled
from autotuner.race.heat import heat
from autotuner.race.race import Incumbent, measure
from autotuner.run.line import GateLevel, Line, Passed
from autotuner.values import codes
from autotuner.values.conditions import Conditions
from autotuner.values.errors import FULL_PAUSES_S, DeviceFullError, InfrastructureError
from autotuner.values.gate_report import CheckResult, GateReport
from autotuner.values.model import Model
from autotuner.values.outcome import Artifact, Calibration, Heat, Measurement, Outcome, Say
from autotuner.values.variant import Variant
from autotuner.values.verdict import Fault, Verdict

T = TypeVar("T")
Samples = Sequence[float]


class BuildJob(Model):
    """Build one variant."""

    variant: Variant
    conditions: Conditions


class Built(Model):
    """A variant that can be judged."""

    artifact: Artifact
    seconds: float = Field(description="wall seconds of its build job")
    began: AwareDatetime | None = Field(default=None, description="when that began; None: it was built before")


class JudgeJob(Model):
    """Judge what was built."""

    built: Built
    conditions: Conditions
    incumbent: Artifact | None = Field(default=None, description="what it races against, besides the baseline")
    incumbent_ratios: tuple[float, ...] = Field(
        default=(), description="of the incumbent, one a problem, from its races: ln(t_incumbent / t_baseline)"
    )
    soak: Literal["never", "promoted", "finalist", "chosen"] = Field(
        default="promoted",
        description="G6 before it is promoted; of a finalist in any case, and longer; of the one that is chosen as long"
        " as some seconds allow, and G8's check of memory where its tool is there",
    )
    many_s: float = Field(default=10.0, description="seconds of launches, of the one that is chosen")
    fresh: bool = Field(default=False, description="in a process that has judged nothing before")
    sanitize: bool = Field(default=False, description="G8 too")
    rejected: Outcome | None = Field(
        default=None, description="what judging it came to: it only goes under the sanitizers, which may say why"
    )

    @property
    def variant(self) -> Variant:
        """The variant to judge."""
        return self.built.artifact.variant

    @property
    def checks_memory(self) -> bool:
        """A sanitizer looks at its memory, in a process that has judged nothing before."""
        return self.soak == "chosen"


class CalibrationJob(Model):
    """Measure the references and the ceilings, and pin the baselines."""

    conditions: Conditions


class RaceJob(Model):
    """Race variants that passed the gate, and the baseline, through some blocks. One that is there twice is loaded
    twice: the A/A test. Without any the baseline is timed in a process that has loaded no variant for it."""

    artifacts: tuple[Artifact, ...]
    conditions: Conditions
    blocks: PositiveInt
    judged: Literal["before", "after"] | None = Field(
        default=None,
        description="the one variant is audited after the race, and goes through quick cases of the gate before that or"
        " in the end, in the same process: one that is judged and one that is only timed cannot be told apart",
    )
    fresh: bool = Field(default=False, description="in a process that has judged nothing before")


AnyJob = BuildJob | JudgeJob | CalibrationJob | RaceJob
Result = Built | Outcome | Calibration | Heat | Fault


def faults_in(result: Result) -> list[Fault]:
    """What a result says against variants."""
    found = result.faults.values() if isinstance(result, Heat) else [getattr(result, "fault", result)]
    return [each for each in found if isinstance(each, Fault)]


def not_done(job: AnyJob, why: str, tail: str = "") -> Result:
    """The result of a job that our own machinery failed to do: an infra_error of a job of variants. `tail`: what its
    process printed last. Raises InfrastructureError for any other job."""
    fault = Fault(verdict=Verdict.INFRA_ERROR, code="process.lost", detail=why)
    if isinstance(job, RaceJob):
        return fault
    if not isinstance(job, BuildJob | JudgeJob):
        raise InfrastructureError(f"{why}; {tail}" if tail else why)
    return Outcome(variant=job.variant, verdict=Verdict.INFRA_ERROR, fault=fault, stderr_tail=tail)


def perform(job: AnyJob, line: Line, say: Say) -> Result:
    """Does the job. `say` hears of every step before it starts, so that a death can be placed.

    A device without memory is waited for. Where it has none for long, the machine was disturbed: what was asked for is
    not at fault. Raises DeviceFullError then where no variant was asked for.
    """
    if isinstance(job, BuildJob):
        return build(job, line, say)
    try:
        return _with_memory(partial(_done, job, line, say), say)
    except DeviceFullError as full:
        if isinstance(job, CalibrationJob):
            raise
        fault = Fault(verdict=Verdict.DISTURBED, code=codes.FULL, detail=str(full))
        if isinstance(job, RaceJob):
            return fault
        return Outcome(variant=job.variant, verdict=fault.verdict, artifact=job.built.artifact, fault=fault)


def _done(job: JudgeJob | RaceJob | CalibrationJob, line: Line, say: Say) -> Result:
    if isinstance(job, JudgeJob):
        return judge(job, line, say)
    if isinstance(job, RaceJob):
        return race(job, line, say)
    say("calibrate")
    return line.calibrate(job.conditions, say)


def _with_memory(work: Callable[[], T], say: Say) -> T:
    """What the work gives, which begins anew after a pause while the device has no memory left. Raises DeviceFullError
    after the last pause."""
    for pause in (*FULL_PAUSES_S, None):
        try:
            return work()
        except (DeviceFullError, RuntimeError) as error:
            full = _full(error)
        if pause is None:
            raise full
        say(f"waiting for memory: {full}")
        gc.collect()  # the error and the frames that it came through refer to each other, and these to tensors
        time.sleep(pause)
    raise AssertionError("the last try returns or raises")


def _full(error: DeviceFullError | RuntimeError) -> DeviceFullError:
    """What is said of a full device, without the frames that it was raised in. Raises any other error again."""
    if isinstance(error, DeviceFullError):
        return DeviceFullError(str(error))
    from autotuner.ops.tensors import full_of  # where torch says so it is here already

    full = full_of(error)
    if full is None:
        raise error
    return full


def build(job: BuildJob, line: Line, say: Say) -> Built | Outcome:
    """The variant, built; its outcome if there is nothing to judge."""
    say("build")
    began, started = datetime.now(UTC), time.monotonic()
    made = line.build(job.variant, job.conditions)
    seconds = time.monotonic() - started
    if isinstance(made, Fault):
        took = {"build": seconds}
        return Outcome(variant=job.variant, verdict=made.verdict, fault=made, seconds=took, build_began=began)
    return Built(artifact=made, seconds=seconds, began=began)


def race(job: RaceJob, line: Line, say: Say) -> Heat | Fault:
    """Interleaved blocks of all; a fault when the machine was disturbed, or one of them failed while it was timed."""
    fault = _gated(job, line, say) if job.judged == "before" else None
    found = fault or _raced(job, line, say)
    ends_there = job.judged != "after" or faults_in(found)
    return found if ends_there else _gated(job, line, say) or found


def _raced(job: RaceJob, line: Line, say: Say) -> Heat | Fault:
    say("measure")
    try:
        tracks = line.tracks(job.conditions)
        found = heat(tracks, job.artifacts, job.blocks, job.conditions, say, job.fresh and bool(job.artifacts))
    except (ArmError, Throttled) as error:
        return error.fault
    return _audited_after(found, job, tracks, say) if job.judged and not found.faults else found


def _gated(job: RaceJob, line: Line, say: Say) -> Fault | None:
    """What the quick cases find of the one variant, on the inputs of the race's seeds."""
    (artifact,) = job.artifacts
    say("check")
    empty = GateReport(artifact=artifact.digest, required=(), checks=())
    return line.check(artifact, job.conditions, say, Passed(empty, "again")).fault


def _audited_after(found: Heat, job: RaceJob, tracks: Tracks, say: Say) -> Heat:
    """The heat of one variant, with its audit; a fault that shows there is one of the heat."""
    say("audit")
    (artifact,), (us,) = job.artifacts, found.us
    check, fault = _audit(artifact, zip(us, found.baseline_us, strict=True), job.conditions, tracks, say)
    if fault is not None:
        return found.model_copy(update={"faults": {0: fault}, "us": ((),), "audit": check})
    return found.model_copy(update={"audit": check})


def _audit(
    artifact: Artifact, us: Iterable[tuple[Samples, Samples]], conditions: Conditions, tracks: Tracks, say: Say
) -> tuple[CheckResult, Fault | None]:
    """What the audit found, as a check of the gate, and the variant's fault if it has one. `us`: samples of the race,
    microseconds, of the variant and of the baseline for each problem."""
    started = time.monotonic()
    try:
        found = audit(tracks, artifact, [Raced.of(*pair) for pair in us], conditions, say)
    except ArmError as error:
        found = error.fault
    fault, note = (found, None) if isinstance(found, Fault) else (None, found)
    status = "fail" if fault else "pass"
    return CheckResult(code=recheck.AUDIT, status=status, seconds=time.monotonic() - started, note=note), fault


def judge(job: JudgeJob, line: Line, say: Say) -> Outcome:
    """The straight line on the device. Only a pass of the gate leads to a measurement."""
    return _Judging(job, line, say).run()


class _Clock:
    """Hears the steps of a measurement and adds up what G7 took, which is part of it."""

    def __init__(self, say: Say) -> None:
        self._say, self._since = say, 0.0
        self._checking = False
        self.seconds = 0.0

    def __call__(self, step: str) -> None:
        self.stop()
        self._checking, self._since = step.startswith(codes.RECHECK), time.monotonic()
        self._say(step)

    def stop(self) -> None:
        """The last step is over."""
        if self._checking:
            self.seconds += time.monotonic() - self._since
        self._checking = False


class _Judging:
    """One variant on its way; keeps what is known so far, for the outcome."""

    def __init__(self, job: JudgeJob, line: Line, say: Say) -> None:
        self._job, self._line, self._say = job, line, say
        self._seconds = {"build": job.built.seconds}
        self._report: GateReport | None = None

    def run(self) -> Outcome:
        artifact, conditions = self._job.built.artifact, self._job.conditions
        if self._job.rejected is not None:
            return self._explained(self._job.rejected)
        self._report = report = self._timed("check", lambda: self._line.check(artifact, conditions, self._say))
        if not report.passed:
            return self._rejected(report)
        measured = self._measure(report)
        if isinstance(measured, Fault):
            return self._end(measured.verdict, fault=measured)
        levels = self._levels(measured)
        if "soak" in levels:  # finalists are audited after each heat
            fault = self._audit(measured)
            if fault is not None:
                return self._end(fault.verdict, fault=fault)
        for level in levels:
            if self._report.passed:
                passed = Passed(self._report, level, self._job.many_s)
                step = partial(self._line.check, artifact, conditions, self._say, passed)
                self._report = self._timed(level, step)
        if not self._report.passed:
            return self._rejected(self._report)
        return self._end(Verdict.RACED_OUT if measured.censored else Verdict.MEASURED, measurement=measured)

    def _explained(self, rejected: Outcome) -> Outcome:
        """The outcome of a variant that was rejected, with what the sanitizers find of it. Its fault stays the one."""
        artifact, told = self._job.built.artifact, {"fault": rejected.fault}
        before = (rejected.gate or GateReport(artifact=artifact.digest, required=(), checks=())).model_copy(update=told)
        step = partial(self._line.check, artifact, self._job.conditions, self._say, Passed(before, "sanitize"))
        found = self._timed("sanitize", step).model_copy(update=told)
        return rejected.model_copy(update={"gate": found, "seconds": {**rejected.seconds, **self._seconds}})

    def _levels(self, measured: Measurement) -> list[GateLevel]:
        """What is due after the measurement, in this order."""
        due: dict[str, list[GateLevel]] = {"finalist": ["finalist"], "chosen": ["many", "memory"]}
        if measured.promoted:
            due["promoted"] = ["soak"]
        levels = due.get(self._job.soak, [])
        return [*levels, "sanitize"] if self._job.sanitize else levels

    def _measure(self, report: GateReport) -> Measurement | Fault:
        """The measurement; what G7 found after it goes into the report."""
        job, clock = self._job, _Clock(self._say)

        def race_it() -> Measurement | Fault:
            incumbent = None if job.incumbent is None else Incumbent(job.incumbent, job.incumbent_ratios)
            return measure(self._line.tracks(job.conditions), job.built.artifact, incumbent, job.conditions, clock)

        measured = self._timed("measure", race_it)
        clock.stop()
        fault = measured if isinstance(measured, Fault) else None
        if fault is None or fault.code in recheck.MEANINGS:
            check = CheckResult(code=codes.RECHECK, status="fail" if fault else "pass", seconds=clock.seconds)
            self._report = report.extended((check,), fault)
        return measured

    def _audit(self, measured: Measurement) -> Fault | None:
        """Before a variant becomes the incumbent: does it compute while it is timed? A pass goes into the report; a
        fault drops the times."""
        job = self._job
        us = [(timing.variant_us, timing.baseline_us) for timing in measured.timings]
        tracks = self._line.tracks(job.conditions)
        check, fault = self._timed("audit", lambda: _audit(job.built.artifact, us, job.conditions, tracks, self._say))
        assert self._report is not None
        self._report = self._report.extended((check,), fault)
        return fault

    def _timed(self, stage: str, step: Callable[[], T]) -> T:
        self._say(stage)
        started = time.monotonic()
        try:
            return step()
        finally:
            self._seconds[stage] = time.monotonic() - started

    def _rejected(self, report: GateReport) -> Outcome:
        fault = report.fault
        if fault is None:  # nothing failed, yet a level did not run: absence is no pass
            fault = Fault(verdict=Verdict.INFRA_ERROR, code=codes.INCOMPLETE, detail="a level of the gate did not run")
        return self._end(fault.verdict, fault=fault)

    def _end(self, verdict: Verdict, fault: Fault | None = None, measurement: Measurement | None = None) -> Outcome:
        return Outcome(
            variant=self._job.variant,
            verdict=verdict,
            artifact=self._job.built.artifact,
            gate=self._report,
            measurement=measurement,
            fault=fault,
            seconds=self._seconds,
            build_began=self._job.built.began,
        )
