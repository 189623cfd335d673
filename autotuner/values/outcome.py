"""What the stages of the line hand to each other: Device, Artifact, Calibration, Measurement, Outcome."""

import math
from collections.abc import Callable, Sequence
from enum import StrEnum
from statistics import median
from typing import Annotated, Any, Literal, Self

from pydantic import AwareDatetime, Field

from autotuner.values.gate_report import CheckResult, GateReport, ReferenceCheck
from autotuner.values.model import Model
from autotuner.values.problem import Problem
from autotuner.values.ratio import Log, LogRatio, quoted, speedup_of, weighted
from autotuner.values.variant import Value, Variant, digest_of
from autotuner.values.verdict import Fault, Verdict

Say = Callable[[str], None]
"""Hears the name of each step of a job before it starts, so that a death can be placed."""
Micros = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Device(Model):
    """The machine a study runs on: its model name is part of the study's identity, its facts feed the constraints."""

    backend: str
    name: str
    facts: dict[str, Value | bool]
    environment: dict[str, str] = Field(description="versions and settings that a number depends on")


class Artifact(Model):
    """A built variant: one uniquely named extension, content-addressed.

    `digest` covers the variant, the compile-time part of the problem (in `macros`), architecture, compiler, flags,
    every source and header, and the ABI; `name` is the importable module name made from it.
    `program_hash` covers the machine code and host-side parameters alone: equal programs are measured once.
    """

    variant: Variant
    digest: str
    name: str
    path: str
    library_sha256: str
    program_hash: str
    macros: dict[str, str] = Field(description="as the binary must report them: parameters and compile-time part")
    compiler: str
    flags: tuple[str, ...]
    architecture: str
    resources: dict[str, int]
    interpreted: bool = Field(
        default=False, description="a function of Python: what compiles does so before its process is caged"
    )
    build_seconds: float = Field(description="wall seconds of the compiler run that made it; 0 when found in the cache")


class Stop(StrEnum):
    """Why a race ended. docs/method/timing.md has the rules."""

    PRECISE = "precise"
    STEADY = "steady"
    SLOWER = "slower"
    HOPELESS = "hopeless"
    PROMOTED = "promoted"
    LIMIT = "limit"
    LATE = "late"

    @property
    def gives_up(self) -> bool:
        """The race ended because the variant is slower than the incumbent: its latency is an estimate."""
        return self in (Stop.SLOWER, Stop.HOPELESS)


class Timing(Model):
    """One problem, timed in interleaved blocks: in each block every arm ran once, in random order."""

    problem: Problem
    baseline: str
    variant_us: tuple[Micros, ...] = Field(description="per block: microseconds of one forward of the variant")
    baseline_us: tuple[Micros, ...] = Field(description="per block: microseconds of one forward of the baseline")
    incumbent_us: tuple[Micros, ...] = Field(default=(), description="the same of the incumbent; empty without one")
    log_ratio: LogRatio = Field(
        description="the median over the blocks; where the race was given up, that of the incumbent"
        " plus ln(t_variant / t_incumbent) over the blocks"
    )
    calls: tuple[int, int] = Field(description="forwards a sample: (variant, baseline)")

    @property
    def of_incumbent(self) -> float | None:
        """The median over the blocks of ln(t_incumbent / t_baseline); None without an incumbent."""
        if not self.incumbent_us:
            return None
        pairs = zip(self.incumbent_us, self.baseline_us, strict=True)
        return median(math.log(incumbent / baseline) for incumbent, baseline in pairs)


class Measurement(Model):
    """Latency of a variant that passed the gate.

    `objective` is ln(t_variant / t_baseline): the median over the blocks, and over several problems their mean or,
    where the space file says so, their weighted mean or their maximum.
    """

    timings: tuple[Timing, ...]
    objective: Log
    weights: tuple[float, ...] = Field(default=(), description="of the problems in the objective; none: all alike")
    cache: Literal["cold", "warm"]
    stopped: Stop = Stop.PRECISE
    incumbent: str | None = Field(default=None, description="digest of the artifact that it raced against")
    gain: LogRatio | None = Field(
        default=None, description="ln(t_variant / t_incumbent): the trimmed mean over the blocks"
    )
    discarded: int = Field(default=0, description="blocks left out because the device throttled, or was shared")
    held_up: float = Field(
        default=0.0, description="share of its blocks in which something else had the device, 0..1: the interval has it"
    )
    unseen: float = Field(default=0.0, description="what other work may have done to a log-ratio that no sample shows")
    disturbed: str = Field(default="", description='who was seen to disturb it; "": nobody, or it was not held up')

    @property
    def censored(self) -> bool:
        """Whether the race was given up, so that the latency is an estimate from a few blocks."""
        return self.stopped.gives_up

    @property
    def promoted(self) -> bool:
        """Whether the variant is the new incumbent: it beat the old one beyond the tie band, or there was none."""
        return self.stopped == Stop.PROMOTED or (self.incumbent is None and not self.censored)

    @property
    def log_ratio(self) -> LogRatio:
        """The objective with an interval that is at least as wide as its own: its ends are combined as the problems'
        log-ratios are."""
        ratios = [timing.log_ratio for timing in self.timings]
        low, high = self._over([each.low for each in ratios]), self._over([each.high for each in ratios])
        return LogRatio(low=low, mid=self.objective, high=high)

    @property
    def variant_us(self) -> float:
        """Microseconds of one forward of the variant: over several problems the geometric mean of the medians, or that
        of the worst problem where the objective is the largest log-ratio."""
        return math.exp(self._over([math.log(median(timing.variant_us)) for timing in self.timings]))

    @property
    def baseline_us(self) -> float:
        """The same of the baseline, in the same blocks."""
        return math.exp(self._over([math.log(median(timing.baseline_us)) for timing in self.timings]))

    @property
    def speedup(self) -> float:
        """t_baseline / t_variant, over several problems as the objective says."""
        return speedup_of(self.objective)

    @property
    def of_incumbent(self) -> tuple[float, ...]:
        """ln(t_incumbent / t_baseline) of the incumbent that the variant raced against, one a problem, by the same
        blocks; empty without one."""
        found = tuple(each for timing in self.timings if (each := timing.of_incumbent) is not None)
        return found if len(found) == len(self.timings) else ()

    def _over(self, values: Sequence[float]) -> float:
        """One number of one a problem, as the objective makes it."""
        worst = max(range(len(self.timings)), key=lambda place: self.timings[place].log_ratio.mid)
        # The largest equals the mean only where all are equal, and then it does not matter.
        if self.timings[worst].log_ratio.mid == self.objective:
            return values[worst]
        return weighted(values, self.weights or "mean")


class Heat(Model):
    """Some variants raced in one process, block by block, together with the baseline. Microseconds of one forward."""

    entrants: tuple[str, ...] = Field(description="digests of the artifacts; one that is there twice was loaded twice")
    baselines: tuple[str, ...] = Field(description="the baseline, one a problem")
    us: tuple[tuple[tuple[Micros, ...], ...], ...] = Field(description="[entrant][problem][block]")
    baseline_us: tuple[tuple[Micros, ...], ...] = Field(description="[problem][block]")
    faults: dict[int, Fault] = Field(
        default_factory=dict, description="entrants that failed while they were timed, or in the audit after it"
    )
    waited_us: tuple[tuple[tuple[float, ...], ...], ...] = Field(
        default=(), description="of `us` what something else had of the device, at most; empty: nothing"
    )
    baseline_waited_us: tuple[tuple[float, ...], ...] = Field(default=(), description="the same of `baseline_us`")
    held_up: float = Field(default=0.0, description="share of the blocks in which a sample was held up, 0..1")
    unseen: float = Field(default=0.0, description="what other work may have done to a log-ratio that no sample shows")
    discarded: int = 0
    audit: CheckResult | None = Field(
        default=None, description="of the one entrant, after the blocks; None: it was not audited in this process"
    )


class Ceilings(Model):
    """What the device can do at most, as measured when the session starts."""

    flops: float = Field(description="operations a second, of the fastest of some large matrix products")
    bytes: float = Field(description="bytes a second read and written, of a large copy")


class NamedFunction(Model):
    """A function of Python that the user named as a baseline: where it is found, and which one it was."""

    name: str = Field(description="what tables call it: module:function, or the name of a library")
    python: str = Field(description="module:function")
    path: str = Field(description="the folder in which the module is found where it is not installed")
    digest: str = Field(
        description="of the module's file and its package's version: with others it is another baseline"
    )


class BackendTiming(Model):
    """One baseline on one problem, measured by the calibration."""

    backend: str
    problem: Problem
    median_us: float


class Calibration(Model):
    """What was found before the first trial: the pinned baseline of each problem, and the references' errors."""

    baselines: tuple[str, ...] = Field(description="the pinned baseline, one a problem")
    timings: tuple[BackendTiming, ...]
    refused: dict[str, str] = Field(default_factory=dict, description="why a baseline was not timed, in words")
    rivals: tuple[str, ...] = Field(
        default=(), description="may be faster than one pinned: held up, or not made in time"
    )
    references: tuple[ReferenceCheck, ...]
    versions: dict[str, str] = Field(default_factory=dict, description="of torch, and of what its backends call")
    ceilings: Ceilings | None = Field(
        default=None, description="None: not measured, so no latency is called impossible"
    )

    @property
    def pinned(self) -> dict[str, Any]:
        """What conditions have of it."""
        known = () if math.inf in self.baseline_us else self.baseline_us
        return {"baselines": self.baselines, "baselines_us": known, "ceilings": self.ceilings}

    @property
    def broken(self) -> tuple[ReferenceCheck, ...]:
        """Where a baseline breaks its own tolerance."""
        return tuple(check for check in self.references if check.failed_rule is not None)

    @property
    def oracle_fault(self) -> str | None:
        """Why nothing can be judged, in words; None where each case has a baseline within its tolerance everywhere."""
        unsound = {check.backend for check in self.broken}
        answered = {one.case for one in self.references if one.errors is not None and one.backend not in unsound}
        hopeless = [check for check in self.broken if check.case not in answered]
        if not hopeless:
            return None
        first, rest = hopeless[0], len(hopeless) - 1
        return (
            f"baseline {self._breach(first)}{f', and {rest} more' if rest else ''};"
            " the case or this installation is broken, `autotuner gate --reference` shows where"
        )

    @property
    def left_out(self) -> dict[str, str]:
        """Why a baseline is no baseline here, in words, by its name: it cannot be launched, or breaks its own tolerance
        on a case that another one computes right."""
        first = {check.backend: check for check in reversed(self.broken)}
        return {**self.refused, **{name: self._breach(check) for name, check in first.items()}}

    def _breach(self, check: ReferenceCheck) -> str:
        assert check.errors is not None
        of = "" if check.backend in self.versions else f" of torch {self.versions.get('torch', '?')}"
        return (
            f"{check.backend}{of} breaks {check.failed_rule} on {check.case}:"
            f" {check.errors.worst_ratio:.2f} times the tolerance"
        )

    @property
    def doubts(self) -> list[str]:
        """Why a speedup over these baselines is to be doubted, in sentences."""
        found = f"{', '.join(self.rivals)} may be faster than the baseline {', '.join(dict.fromkeys(self.baselines))}"
        remedy = "`autotuner finals` on a quiet machine times them again"
        return [f"{found}: held up by other work, or not made in time; {remedy}."] if self.rivals else []

    @property
    def baseline_us(self) -> tuple[float, ...]:
        """What each problem's pinned baseline took, microseconds, infinite where it was not timed; the timings are in
        the order of the problems."""
        took = {(each.problem, each.backend): each.median_us for each in self.timings}
        problems = dict.fromkeys(each.problem for each in self.timings)
        return tuple(took.get(pair, math.inf) for pair in zip(problems, self.baselines, strict=False))


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
    build_began: AwareDatetime | None = Field(
        default=None, description="by the clock of the builder's machine; None: nothing was built"
    )
    stderr_tail: str = ""

    def line(self, baseline: str, beside: str = "") -> str:
        """It in one line, for who follows a sweep. `beside`: what is to stand behind its speedup."""
        if self.measurement is not None:
            note = "" if self.verdict == Verdict.MEASURED else f" ({self.verdict.words})"
            found = f"{quoted(self.measurement.speedup, False, baseline)}{beside}"
            return f"{found}, {self.measurement.variant_us:.1f} us{note}  {self.variant}"
        why = f" {self.fault.code}" if self.fault else ""
        if self.fault is not None and not self.verdict.judges:  # not the variant's: a person can help
            why += f" ({self.fault.detail.partition(chr(10))[0]})"
        return f"{self.verdict.words}{why}  {self.variant}"

    @property
    def objective(self) -> float:
        """What the sampler is told: finite only with a latency."""
        if self.verdict.has_latency and self.measurement is not None:
            return self.measurement.objective
        return float("inf")

    def corrected(self, objective: float | None) -> Self:
        """The same with another objective, where one is given and this one has a latency."""
        if objective is None or self.measurement is None or not self.verdict.has_latency:
            return self
        return self.model_copy(update={"measurement": self.measurement.model_copy(update={"objective": objective})})

    def disturbed_by(self, who: str) -> Self:
        """The same with who was seen to disturb its measurement, where it was held up."""
        if self.measurement is None or not (self.measurement.held_up or self.measurement.unseen) or not who:
            return self
        return self.model_copy(update={"measurement": self.measurement.model_copy(update={"disturbed": who})})


def study_name(space: str, identity: object) -> str:
    """The name of a study: its space's name and a digest of all that its numbers depend on."""
    return f"{space}-{digest_of(identity)[:10]}"
