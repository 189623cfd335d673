"""What the stages of the line hand to each other: Device, Artifact, Fault, GateReport, Measurement, Outcome."""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import StrEnum
from typing import Literal

from pydantic import Field

from autotuner.model import Model
from autotuner.problem import Problem
from autotuner.variant import Value, Variant, digest_of

Say = Callable[[str], None]
"""Hears the name of each step of a job before it starts, so that a death can be placed."""


class Verdict(StrEnum):
    """How judging a variant ended. `OPTUNA_STATE` in search.py maps each to what Optuna is told."""

    MEASURED = "measured"
    DEDUPLICATED = "deduplicated"
    RACED_OUT = "raced_out"
    OVER_LIMITS = "over_limits"
    BUILD_FAILED = "build_failed"
    BUILD_TIMEOUT = "build_timeout"
    LAUNCH_FAILED = "launch_failed"
    INCORRECT = "incorrect"
    NONDETERMINISTIC = "nondeterministic"
    CORRUPTING = "corrupting"
    CRASHED = "crashed"
    HUNG = "hung"
    IMPOSSIBLE = "impossible"
    INFRA_ERROR = "infra_error"
    ORACLE_ERROR = "oracle_error"

    @property
    def has_latency(self) -> bool:
        """True for the verdicts under which a variant has a latency; every other verdict has none anywhere."""
        return self in (Verdict.MEASURED, Verdict.DEDUPLICATED, Verdict.RACED_OUT)

    @property
    def judges(self) -> bool:
        """False when the ending says nothing about the variant."""
        return self not in (Verdict.INFRA_ERROR, Verdict.ORACLE_ERROR)


class Device(Model):
    """The machine a study runs on: its model name is part of the study's identity, its facts feed the constraints."""

    backend: str
    name: str
    facts: dict[str, Value | bool]
    environment: dict[str, str] = Field(description="versions and settings that a number depends on")


class Artifact(Model):
    """A built variant: one uniquely named extension, content-addressed.

    `digest` covers the variant, the compile-time part of the problem (dtype, head_dim, causal, lengths), architecture,
    compiler, flags, every source and header, and the ABI; `name` is the importable module name made from it.
    `program_hash` covers the machine code and host-side parameters alone: equal programs are measured once.
    """

    variant: Variant
    dtype: str
    head_dim: int
    causal: bool
    lengths: tuple[int, int] | None = Field(default=None, description="(seq_q, seq_k) when no others are served")
    digest: str
    name: str
    path: str
    library_sha256: str
    program_hash: str
    macros: dict[str, str]
    compiler: str
    flags: tuple[str, ...]
    architecture: str
    resources: dict[str, int]
    build_seconds: float = Field(description="wall seconds of the compiler run that made it; 0 when found in the cache")


class Fault(Model):
    """A variant's fault: a value, not an exception. `code` is stable; `detail` explains it to a person."""

    verdict: Verdict
    code: str
    detail: str
    case: str | None = None


def error_in_tolerances(error: float, tolerance: float) -> float:
    """error / tolerance, where no error is within any tolerance and NaN within none."""
    if error == 0:
        return 0.0
    return error / tolerance if tolerance > 0 and not math.isnan(error) else math.inf


class CaseErrors(Model):
    """Errors of one output against the float64 reference, each beside its tolerance (docs/gate.md, T0 to T3)."""

    nonfinite: int
    max_abs: float
    max_abs_tol: float
    row_rel: float
    row_rel_tol: float
    head_rel: float
    head_rel_tol: float
    bias: float = Field(description="mean of output - reference, signed")
    worst_index: tuple[int, ...] = Field(description="(batch, head, row, column) of the largest absolute error")
    worst_value: float
    worst_reference: float
    first_bad_row: tuple[int, ...] | None = Field(description="(batch, head, row) of the first row out of tolerance")
    bad_rows: float = Field(description="fraction of rows out of tolerance")

    @property
    def failed_rule(self) -> str | None:
        """The first of T0..T3 that the output breaks. Written as `not <=`, so that NaN fails."""
        if self.nonfinite:
            return "T0"
        if not self.max_abs <= self.max_abs_tol:
            return "T1"
        if not self.row_rel <= self.row_rel_tol:
            return "T2"
        if not self.head_rel <= self.head_rel_tol:
            return "T3"
        return None

    @property
    def worst_ratio(self) -> float:
        """Largest error in units of its tolerance; above 1 is a failure."""
        pairs = (
            (self.max_abs, self.max_abs_tol),
            (self.row_rel, self.row_rel_tol),
            (self.head_rel, self.head_rel_tol),
        )
        return max(error_in_tolerances(error, tolerance) for error, tolerance in pairs)


class CaseResult(Model):
    """One case of the matrix with one seed."""

    case: str
    seed_index: int
    errors: CaseErrors


class CheckResult(Model):
    """One check of the gate."""

    code: str
    status: Literal["pass", "fail", "unavailable"]
    seconds: float
    cases: tuple[CaseResult, ...] = ()


REQUIRED_CHECKS = (
    "G0.identity",
    "G1.smoke",
    "G2.quick",
    "G3.repeat",
    "G3.scale_v",
    "G3.permute",
    "G3.ones",
    "G3.offset",
    "G3.misaligned",
    "G5.matrix",
)
"""Without a pass of each of these no variant has a latency."""


class GateReport(Model):
    """What the gate found, in the order it looked; the first failure stopped it."""

    schema_version: Literal[1] = 1
    artifact: str
    causal: bool = False
    streams: bool = Field(default=False, description="the device has streams: G4 is required")
    fixed_lengths: bool = Field(
        default=False, description="the artifact serves one pair of lengths: G3.domain is required"
    )
    checks: tuple[CheckResult, ...]
    fault: Fault | None = None

    @property
    def passed(self) -> bool:
        """True when nothing failed and every required check ran: absence is no pass."""
        done = {check.code for check in self.checks if check.status == "pass"}
        required = {*REQUIRED_CHECKS}
        required |= {"G3.future"} if self.causal else set()
        required |= {"G3.domain"} if self.fixed_lengths else set()
        required |= {"G4.stream", "G4.capture"} if self.streams else set()
        return self.fault is None and required <= done

    def extended(self, checks: tuple[CheckResult, ...], fault: Fault | None) -> GateReport:
        """This report with later checks (soak, after timing) appended."""
        return self.model_copy(update={"checks": self.checks + checks, "fault": fault})


class Interval(Model):
    """A distribution-free confidence interval of a median."""

    low: float
    median: float
    high: float
    level: float = 0.95


class Timing(Model):
    """One problem, timed in interleaved blocks: in each block every arm ran once, in random order."""

    problem: Problem
    baseline: str
    variant_us: tuple[float, ...] = Field(description="per block: microseconds of one forward of the variant")
    baseline_us: tuple[float, ...] = Field(description="per block: microseconds of one forward of the baseline")
    log_ratio: Interval = Field(description="ln(t_variant / t_baseline) over the blocks")
    calls: tuple[int, int] = Field(description="forwards a sample: (variant, baseline)")


class Measurement(Model):
    """Latency of a variant that passed the gate. `objective` is the mean over problems of ln(t_variant/t_baseline)."""

    timings: tuple[Timing, ...]
    objective: float
    cache: Literal["cold", "warm"]
    censored: bool = Field(default=False, description="stopped early because it was clearly slower")

    @property
    def speedup(self) -> float:
        """t_baseline / t_variant, geometric mean over the problems."""
        return math.exp(-self.objective)


class BackendTiming(Model):
    """One SDPA backend on one problem, measured by the calibration."""

    backend: str
    problem: Problem
    median_us: float


class ReferenceCheck(Model):
    """One SDPA backend against the float64 reference on one calibration case."""

    backend: str
    case: str
    errors: CaseErrors


class Calibration(Model):
    """What was found before the first trial: the pinned baseline of each problem, and the references' errors."""

    baselines: tuple[str, ...] = Field(description="the pinned SDPA backend, one a problem")
    timings: tuple[BackendTiming, ...]
    references: tuple[ReferenceCheck, ...]

    @property
    def baseline_us(self) -> tuple[float, ...]:
        """What each problem's pinned baseline took, microseconds; the timings are in the order of the problems."""
        pinned = iter(self.baselines)
        problems = dict.fromkeys(timing.problem for timing in self.timings)
        found = {(timing.problem, timing.backend): timing.median_us for timing in self.timings}
        return tuple(found[problem, next(pinned)] for problem in problems)


class Outcome(Model):
    """Everything known of a judged variant. "Did it run" is `verdict`, "was it right" is `gate`."""

    variant: Variant
    verdict: Verdict
    artifact: Artifact | None = None
    gate: GateReport | None = None
    measurement: Measurement | None = None
    fault: Fault | None = None
    original: str | None = Field(default=None, description="deduplicated: digest of the artifact that was measured")
    seconds: dict[str, float] = Field(default_factory=dict, description="wall seconds by stage: build, check, measure")
    stderr_tail: str = ""

    @property
    def objective(self) -> float:
        """What the sampler is told: finite only with a latency."""
        if self.verdict.has_latency and self.measurement is not None:
            return self.measurement.objective
        return float("inf")


def study_name(space: str, identity: object) -> str:
    """The name of a study: its space's name and a digest of all that its numbers depend on."""
    return f"{space}-{digest_of(identity)[:10]}"
