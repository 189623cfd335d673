"""A line that answers from a table: known latencies, known faults, no compiler and no device.

For simulated truth: tests of the driver and of the measuring, and replays of recorded spaces. Its outcomes have the
form of real ones, and its races are run by the same code: only the samples are drawn instead of timed.
"""

import math
import random
from collections.abc import Callable, Sequence
from typing import Self

from pydantic import Field

from autotuner.gate.cases import Case
from autotuner.gate.check import Subject
from autotuner.gate.gate import required
from autotuner.race.arms import Audited, Clocks, Tracks
from autotuner.run.line import Passed
from autotuner.values import codes
from autotuner.values.conditions import Conditions
from autotuner.values.gate_report import CheckResult, GateReport
from autotuner.values.model import Model
from autotuner.values.outcome import Artifact, BackendTiming, Calibration, Say
from autotuner.values.problem import Problem
from autotuner.values.variant import Variant, digest_of
from autotuner.values.verdict import Fault, Verdict

BUILD_FAULTS = (Verdict.BUILD_FAILED, Verdict.BUILD_TIMEOUT, Verdict.OVER_LIMITS)
AFTER = {
    "again": (codes.QUICK,),
    "soak": (codes.SOAK,),
    "finalist": (codes.SOAK,),
    "many": (codes.MANY,),
    "memory": (codes.MEMORY,),
    "sanitize": (codes.MEMORY, codes.RACE),
}
LAUNCHES = 1000
"""Launches that each of these is said to have made."""


class Truth(Model):
    """What is true of one variant."""

    us: float = math.inf
    honest_us: float | None = None
    """On inputs that it has not seen; None: `us`."""
    fault: Verdict | None = None
    program: str | None = None
    """Variants with the same program are the same binary; None: a program of its own."""
    on: dict[str, float] = Field(default_factory=dict)
    """What it takes on some problems, microseconds, by their words; `us` on the others."""
    process: float | None = None
    """What `Deviations` say under the same name, where this variant is not like the others."""

    def of(self, problem: Problem) -> Self:
        """What is true on that problem."""
        us = self.on.get(str(problem), self.us)
        return self if us == self.us else self.model_copy(update={"us": us})


class Deviations(Model):
    """What lies between the truth and a sample. Every part is relative; 0 is absent."""

    noise: float = 0.0
    """Standard deviation of one sample."""
    spikes: float = 0.0
    """The share of samples that something disturbs; they take `spike` longer."""
    spike: float = 0.5
    process: float = 0.0
    """Standard deviation between loads of one binary: what a process, with its addresses, adds to it for good."""
    tails: bool = False
    """Whether these have Student's distribution with three degrees of freedom, instead of the normal one."""
    drift: float = 0.0
    """How much slower the device becomes over a thousand samples, on every arm alike, and then faster again."""
    throttling: float = 0.0
    """The share of blocks after which the device throttles: `throttled_for` samples take 1.6 times longer."""
    throttled_for: int = 9
    held_up: float = 0.0
    """The share of samples that something holds up: they take up to `wait` longer, and say so."""
    wait: float = 2.0


class FakeLine:
    """`truth` says what is true of a variant; `noise` is short for deviations of no other kind."""

    imports = False

    def __init__(
        self,
        truth: Callable[[Variant], Truth],
        baseline_us: float = 100.0,
        noise: float = 0.0,
        deviations: Deviations | None = None,
        seed: int = 0,
    ) -> None:
        """`seed` stands for the process: a line with another one is another process on the same device."""
        self._truth, self._baseline_us = truth, baseline_us
        self._device = _Device(deviations or Deviations(noise=noise), seed)
        self.built: list[Variant] = []

    def calibrate(self, conditions: Conditions, say: Say) -> Calibration:
        say("calibrate fake")
        timings = [BackendTiming(backend="fake", problem=p, median_us=self._baseline_us) for p in conditions.problems]
        return Calibration(baselines=("fake",) * len(conditions.problems), timings=tuple(timings), references=())

    def build(self, variant: Variant, conditions: Conditions) -> Artifact | Fault:
        self.built.append(variant)
        truth = self._truth(variant)
        if truth.fault in BUILD_FAULTS:
            return Fault(verdict=truth.fault, code="build.failed", detail="a fault of the fake")
        problem = conditions.compiled_for
        return Artifact(
            variant=variant,
            digest=digest_of(["fake", variant.digest]),
            name=f"fake_{variant.digest[:16]}",
            path="",
            library_sha256=variant.digest,
            program_hash=truth.program or variant.digest,
            macros={name: str(value) for name, value in problem.compiled.items()},
            compiler="fake",
            flags=(),
            architecture="fake",
            resources={},
            build_seconds=0.0,
        )

    def compile_first(self, conditions: Conditions, artifacts: Sequence[Artifact], say: Say) -> None:
        pass

    def references(self, conditions: Conditions, artifact: Artifact | None) -> list[tuple[Case, int]]:
        return []

    def check(self, artifact: Artifact, conditions: Conditions, say: Say, passed: Passed | None = None) -> GateReport:
        say("fake gate")
        if passed is not None:
            for code in AFTER[passed.level]:
                say(code)
            more = tuple(
                CheckResult(code=code, status="pass", seconds=0.0, launches=LAUNCHES) for code in AFTER[passed.level]
            )
            return passed.report.extended(more, None)
        needed = required(Subject(conditions.compiled_for, streams=False, bounded=False))
        fault = self._truth(artifact.variant).fault
        if fault is not None:
            failed = CheckResult(code=codes.QUICK, status="fail", seconds=0.0)
            found = Fault(verdict=fault, code="G2.T1", detail="a fault of the fake", case="fake")
            return GateReport(artifact=artifact.digest, required=needed, checks=(failed,), fault=found)
        for code in needed:
            say(code)
        checks = tuple(CheckResult(code=code, status="pass", seconds=0.0) for code in needed)
        return GateReport(artifact=artifact.digest, required=needed, checks=checks)

    def tracks(self, conditions: Conditions) -> Tracks:
        return [FakeTrack(problem, self._device, self._truth, self._baseline_us) for problem in conditions.problems]


class _Device:
    """The deviations as time goes by, a sample at a time."""

    def __init__(self, deviations: Deviations, seed: int) -> None:
        self.deviations, self.seed, self.draw = deviations, seed, random.Random(seed)
        self._samples, self._throttled_until = self.draw.randrange(1000), 0
        self._void = False
        self.waited = 0.0
        """Of the seconds of the last sample."""

    def loaded(self, truth: Truth) -> float:
        """The microseconds of a binary as it was loaded."""
        process = self.deviations.process if truth.process is None else truth.process
        if process and self.deviations.tails:
            process /= math.sqrt(self.draw.gammavariate(1.5, 2.0))  # with the variance 1
        return truth.us * math.exp(self.draw.gauss(0.0, process)) if process else truth.us

    def sample(self, us: float) -> float:
        """Seconds of one sample of what takes `us` where nothing deviates."""
        deviations, draw = self.deviations, self.draw
        self._samples += 1
        log = draw.gauss(0.0, deviations.noise) if deviations.noise else 0.0
        if deviations.spikes and draw.random() < deviations.spikes:
            log += math.log1p(deviations.spike)
        if deviations.drift:
            log += deviations.drift * abs(1 - (self._samples / 1000) % 2)
        if self._samples < self._throttled_until:
            self._void = True
            log += math.log(1.6)
        seconds, self.waited = 1e-6 * us * math.exp(log), 0.0
        if deviations.held_up and draw.random() < deviations.held_up:
            self.waited = seconds * deviations.wait * draw.random()
        return seconds + self.waited

    def throttled(self) -> str | None:
        """Whether the device throttled since this was last asked; it may start to now."""
        void, self._void = self._void, False
        if self.deviations.throttling and self.draw.random() < self.deviations.throttling:
            self._throttled_until = self._samples + self.deviations.throttled_for
        return "the clocks were held down" if void else None


class FakeArm:
    """A side whose samples are drawn."""

    calls = 1
    waited, retaken = 0.0, False

    def __init__(self, device: _Device, truth: Truth) -> None:
        self._device, self._us = device, device.loaded(truth)

    def __call__(self) -> float:
        seconds, self.waited = self._device.sample(self._us), self._device.waited
        return seconds

    def recheck(self) -> None:
        """Nothing was written."""

    def clocks(self, seconds: float) -> Clocks | None:
        """There is no other clock."""
        return None


class FakeAuditArm:
    """Samples whose forwards are refilled, at no cost. Both kinds are of one load."""

    def __init__(self, device: _Device, truth: Truth) -> None:
        self._device, self._still_us = device, device.loaded(truth)
        self._fresh_us = self._still_us * (truth.honest_us or truth.us) / truth.us

    def __call__(self, fresh: bool) -> float:
        return self._device.sample(self._fresh_us if fresh else self._still_us)

    def recheck(self) -> None:
        """Its outputs were right."""


class FakeTrack:
    """A problem on the fake device."""

    gap, settles_s, has_room = 1e-6, 0.0, False

    def __init__(
        self, problem: Problem, device: _Device, truth: Callable[[Variant], Truth], baseline_us: float
    ) -> None:
        self.problem = problem
        self._device, self._truth, self._baseline_us = device, truth, baseline_us

    def another(self) -> Self | None:
        return self if self.has_room else None

    def baseline(self, name: str) -> FakeArm:
        return FakeArm(self._device, Truth(us=self._baseline_us))

    def variant(self, artifact: Artifact, again: bool = False) -> FakeArm:
        return FakeArm(self._device, self._truth(artifact.variant).of(self.problem))

    def audit(self, artifact: Artifact, baseline: str) -> Audited:
        # samples of their own: what a race draws does not depend on who was audited
        variant, device = (
            self._truth(artifact.variant).of(self.problem),
            _Device(self._device.deviations, self._device.seed),
        )
        calm = Truth(us=self._baseline_us)
        sides = FakeArm(device, calm), FakeAuditArm(device, calm)
        return Audited(FakeArm(device, variant), FakeAuditArm(device, variant), *sides)

    def throttled(self) -> str | None:
        return self._device.throttled()

    def shared(self) -> str | None:
        """Nobody else has the fake device."""
        return None
