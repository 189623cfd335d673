"""A backend that answers from a table: known latencies, known faults, no compiler and no device.

For simulated truth: tests of the driver, and replays of recorded spaces. Its outcomes have the form of real ones.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from autotuner.backends import Passed
from autotuner.measure.blocks import measurement, run_blocks
from autotuner.model import Model
from autotuner.outcome import Artifact, BackendTiming, Calibration, Measurement, Say, Timing
from autotuner.report import REQUIRED_CHECKS, CheckResult, GateReport
from autotuner.terms import Terms
from autotuner.variant import Variant, digest_of
from autotuner.verdict import Fault, Verdict

BUILD_FAULTS = (Verdict.BUILD_FAILED, Verdict.BUILD_TIMEOUT, Verdict.OVER_LIMITS)


class Truth(Model):
    """What is true of one variant."""

    us: float = math.inf
    fault: Verdict | None = None
    program: str | None = None
    """Variants with the same program are the same binary; None: a program of its own."""


class FakeBackend:
    """`truth` says what is true of a variant; `noise` is the relative standard deviation of one sample."""

    def __init__(self, truth: Callable[[Variant], Truth], baseline_us: float = 100.0, noise: float = 0.0) -> None:
        self._truth, self._baseline_us, self._noise = truth, baseline_us, noise
        self.built: list[Variant] = []

    def calibrate(self, terms: Terms, say: Say) -> Calibration:
        say("calibrate fake")
        timings = [BackendTiming(backend="fake", problem=p, median_us=self._baseline_us) for p in terms.problems]
        return Calibration(baselines=("fake",) * len(terms.problems), timings=tuple(timings), references=())

    def build(self, variant: Variant, terms: Terms) -> Artifact | Fault:
        self.built.append(variant)
        truth = self._truth(variant)
        if truth.fault in BUILD_FAULTS:
            return Fault(verdict=truth.fault, code="build.failed", detail="a fault of the fake")
        problem = terms.compiled_for
        return Artifact(
            variant=variant,
            dtype=problem.dtype,
            head_dim=problem.head_dim,
            causal=problem.causal,
            digest=digest_of(["fake", variant.digest]),
            name=f"fake_{variant.digest[:16]}",
            path="",
            library_sha256=variant.digest,
            program_hash=truth.program or variant.digest,
            macros={},
            compiler="fake",
            flags=(),
            architecture="fake",
            resources={},
            build_seconds=0.0,
        )

    def check(self, artifact: Artifact, terms: Terms, say: Say, passed: Passed | None = None) -> GateReport:
        say("fake gate")
        if passed is not None:
            codes = ("G6.soak",) if passed.level == "soak" else ("G8.memory", "G8.race")
            more = tuple(CheckResult(code=code, status="pass", seconds=0.0) for code in codes)
            return passed.report.extended(more, None)
        fault = self._truth(artifact.variant).fault
        if fault is not None:
            failed = CheckResult(code="G2.quick", status="fail", seconds=0.0)
            found = Fault(verdict=fault, code="G2.T1", detail="a fault of the fake", case="fake")
            return GateReport(artifact=artifact.digest, checks=(failed,), fault=found)
        checks = tuple(CheckResult(code=code, status="pass", seconds=0.0) for code in REQUIRED_CHECKS)
        return GateReport(artifact=artifact.digest, checks=checks)

    def measure(
        self, artifact: Artifact, terms: Terms, say: Say, best: float | None = None, rival: Artifact | None = None
    ) -> Measurement | Fault:
        say("measure fake")
        seed = int(artifact.digest[:8], 16) + terms.seeds[0]
        draw = random.Random(seed)

        def arm(us: float) -> Callable[[], float]:
            return lambda: us * 1e-6 * math.exp(draw.gauss(0.0, self._noise))

        opposite = self._baseline_us if rival is None else self._truth(rival.variant).us
        variant, baseline = arm(self._truth(artifact.variant).us), arm(opposite)
        timings: list[Timing] = []
        censored = False
        for problem in terms.problems:
            blocks = run_blocks(variant, baseline, seed, terms.min_blocks, terms.max_blocks, best)
            timings.append(blocks.timing(problem, "fake", (1, 1)))
            censored = censored or blocks.censored
        return measurement(timings, terms.cache, censored)
