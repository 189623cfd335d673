"""The jobs and how each is done. Runs in a process that may die with the variant.

A variant's way takes two: it is built where no device is seen, and judged (check, measure, soak) on the device.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal, TypeVar

from pydantic import Field

from autotuner.backends import Backend, Passed
from autotuner.model import Model
from autotuner.outcome import Artifact, Calibration, Measurement, Outcome, Say
from autotuner.report import CheckResult, GateReport
from autotuner.terms import Terms
from autotuner.variant import Variant
from autotuner.verdict import Fault, Verdict

T = TypeVar("T")


class BuildJob(Model):
    """Build one variant."""

    variant: Variant
    terms: Terms


class Built(Model):
    """A variant that can be judged."""

    artifact: Artifact
    seconds: float = Field(description="wall seconds of its build job")


class JudgeJob(Model):
    """Judge what was built."""

    built: Built
    terms: Terms
    best: float | None = Field(default=None, description="the objective to beat")
    sanitize: bool = Field(default=False, description="G8 too")

    @property
    def variant(self) -> Variant:
        """The variant to judge."""
        return self.built.artifact.variant


class CalibrationJob(Model):
    """Measure the references and pin the baselines."""

    terms: Terms


class RaceJob(Model):
    """Time a right variant again, to the last block: against the pinned baseline, or against a rival.

    The variant itself as its rival is the A/A test: the library is loaded a second time.
    """

    artifact: str = Field(description="digest of the artifact that passed the gate; another one is not raced")
    variant: Variant
    rival: Variant | None = None
    terms: Terms


AnyJob = BuildJob | JudgeJob | CalibrationJob | RaceJob
Result = Built | Outcome | Calibration | Measurement | Fault


def perform(job: AnyJob, backend: Backend, say: Say) -> Result:
    """Does the job. `say` hears of every step before it starts, so that a death can be placed."""
    if isinstance(job, BuildJob):
        return build(job, backend, say)
    if isinstance(job, JudgeJob):
        return judge(job, backend, say)
    if isinstance(job, RaceJob):
        return race(job, backend, say)
    say("calibrate")
    return backend.calibrate(job.terms, say)


def build(job: BuildJob, backend: Backend, say: Say) -> Built | Outcome:
    """The variant, built; its outcome if there is nothing to judge."""
    say("build")
    started = time.monotonic()
    made = backend.build(job.variant, job.terms)
    seconds = time.monotonic() - started
    if isinstance(made, Fault):
        return Outcome(variant=job.variant, verdict=made.verdict, fault=made, seconds={"build": seconds})
    return Built(artifact=made, seconds=seconds)


def race(job: RaceJob, backend: Backend, say: Say) -> Measurement | Fault:
    """Interleaved blocks of the variant against the baseline or the rival."""
    say("build")
    built = [backend.build(variant, job.terms) for variant in (job.variant, job.rival) if variant is not None]
    for artifact in built:
        if isinstance(artifact, Fault):
            return artifact
    variant, *rivals = [artifact for artifact in built if isinstance(artifact, Artifact)]
    if variant.digest != job.artifact:
        detail = "its sources or its compiler have changed since it passed the gate; tune again"
        return Fault(verdict=Verdict.BUILD_FAILED, code="G0.identity", detail=detail)
    say("measure")
    return backend.measure(variant, job.terms, say, rival=rivals[0] if rivals else None)


def judge(job: JudgeJob, backend: Backend, say: Say) -> Outcome:
    """The straight line on the device. Only a pass of the gate leads to a measurement."""
    return _Line(job, backend, say).run()


class _Clock:
    """Hears the steps of a measurement and adds up what G7 took, which is part of it."""

    def __init__(self, say: Say) -> None:
        self._say, self._since = say, 0.0
        self._checking = False
        self.seconds = 0.0

    def __call__(self, step: str) -> None:
        self.stop()
        self._checking, self._since = step.startswith("G7"), time.monotonic()
        self._say(step)

    def stop(self) -> None:
        """The last step is over."""
        if self._checking:
            self.seconds += time.monotonic() - self._since
        self._checking = False


class _Line:
    """One variant on its way; keeps what is known so far, for the outcome."""

    def __init__(self, job: JudgeJob, backend: Backend, say: Say) -> None:
        self._job, self._backend, self._say = job, backend, say
        self._seconds = {"build": job.built.seconds}
        self._report: GateReport | None = None

    def run(self) -> Outcome:
        artifact, terms, best = self._job.built.artifact, self._job.terms, self._job.best
        self._report = report = self._timed("check", lambda: self._backend.check(artifact, terms, self._say))
        if not report.passed:
            return self._rejected(report)
        measured = self._measure(report)
        if isinstance(measured, Fault):
            return self._end(measured.verdict, fault=measured)
        if best is None or measured.objective < best:
            self._go_on("soak")
        if self._report.passed and self._job.sanitize:
            self._go_on("sanitize")
        if not self._report.passed:
            return self._rejected(self._report)
        return self._end(Verdict.RACED_OUT if measured.censored else Verdict.MEASURED, measurement=measured)

    def _measure(self, report: GateReport) -> Measurement | Fault:
        """The measurement; what G7 found after it goes into the report."""
        artifact, terms, best, clock = self._job.built.artifact, self._job.terms, self._job.best, _Clock(self._say)
        measured = self._timed("measure", lambda: self._backend.measure(artifact, terms, clock, best=best))
        clock.stop()
        fault = measured if isinstance(measured, Fault) else None
        if fault is None or fault.code.startswith("G7"):
            check = CheckResult(code="G7.recheck", status="fail" if fault else "pass", seconds=clock.seconds)
            self._report = report.extended((check,), fault)
        return measured

    def _go_on(self, level: Literal["soak", "sanitize"]) -> None:
        """One more level after a pass."""
        assert self._report is not None
        passed, artifact = Passed(self._report, level), self._job.built.artifact
        self._report = self._timed(level, lambda: self._backend.check(artifact, self._job.terms, self._say, passed))

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
            fault = Fault(verdict=Verdict.INFRA_ERROR, code="gate.incomplete", detail="a level of the gate did not run")
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
        )
