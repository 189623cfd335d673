"""What the store takes and gives: frozen values, never a row of a table. Times are in UTC; those of sweeps, events and
devices are the database's."""

import json
from datetime import datetime
from typing import Literal

from pydantic import Field, JsonValue, field_validator

from autotuner.ops import op_of
from autotuner.race.confirm import Standing
from autotuner.values.gate_report import CheckResult, GateReport
from autotuner.values.model import Model
from autotuner.values.outcome import Calibration, Device, Heat, Outcome
from autotuner.values.problem import Problem
from autotuner.values.ratio import LogRatio, Objective, Speedup
from autotuner.values.sweep import Found, State, SweepRequest, Wish
from autotuner.values.variant import Value, Variant
from autotuner.values.verdict import Fault, Verdict


class StudyRecord(Model):
    """A study's identity and how it is searched. `name` is the Optuna study's name as well."""

    name: str
    space_name: str
    space_digest: str
    space_document: str = Field(description="the space file's content as JSON text")
    problems: tuple[Problem, ...]
    device: Device
    cache: Literal["cold", "warm"]
    sampler: str
    seed: int
    created_at: datetime | None = Field(default=None, description="set by the store")

    @field_validator("space_document")
    @classmethod
    def _is_table(cls, document: str) -> str:
        if not isinstance(json.loads(document), dict):
            raise ValueError("the space is no table")
        return document

    @property
    def objective(self) -> Objective:
        """What counts of several problems: the mean of their log-ratios, weighted or not, or the largest."""
        found = json.loads(self.space_document).get("objective", "mean")
        return tuple(found) if isinstance(found, list) else "max" if found == "max" else "mean"

    @property
    def over(self) -> str:
        """What its speedups are over, in words."""
        own = json.loads(self.space_document).get("baselines")
        return "baseline" if own else op_of(self.problems[0]).words.baseline


class SessionRecord(Model):
    """One run of the driver on a study."""

    id: int
    study: str
    started_at: datetime
    finished_at: datetime | None = Field(description="None: still running, or it was killed")
    calibration: Calibration
    environment: dict[str, str]
    host: str
    pid: int
    lane: int = Field(description="which of the run's devices")
    builders: int = Field(description="variants that its run builds side by side, at most")


class JudgedTrial(Model):
    """What a trial says of its variant. A revoked one is a reject."""

    number: int
    point: dict[str, Value] = Field(description="the variant's parameters: IMPL first, then by name")
    objective: float = Field(description="ln(t_variant / t_baseline); infinite for a reject")
    code: str | None = Field(description="why it was rejected; None when it was not")


class TrialRecord(Model):
    """A trial as it was recorded. A revoked one keeps its outcome here, for the record, and nowhere else."""

    study: str
    number: int
    outcome: Outcome
    session: SessionRecord
    recorded_at: datetime
    revoked_at: datetime | None = None
    revoked_reason: str | None = None


HeatKind = Literal["aa", "finals"]
"""An A/A race of a session, or a heat of finals."""


class Finalist(Model):
    """A trial in the finals."""

    number: int = Field(description="Optuna's trial number")
    variant: Variant
    digest: str = Field(description="of the artifact that raced in the finals")
    searched: str = Field(description="of the artifact that the search measured; another one was built differently")
    estimate: float = Field(description="the search estimate of ln(t_variant / t_baseline), biased in its favour")
    slower_than: tuple[int, ...] = Field(
        default=(), description="numbers of the other finalists that races of the search have shown to be faster"
    )


class OtherCache(Model):
    """What a finalist takes in the other state of the caches than the study's, by one process."""

    cache: Literal["cold", "warm"]
    speedup: Speedup = Field(description="t_baseline / t_variant, over all problems")


class Proof(Model):
    """What was found of a finalist that was chosen, for all problems or for one, beyond the gate of every finalist."""

    number: int = Field(description="Optuna's trial number")
    digest: str = Field(description="of its artifact")
    checks: tuple[CheckResult, ...] = Field(description="G6.many, and G8.memory or why it could not run")
    other_cache: OtherCache | None = Field(
        default=None, description="null where no problem's time is that of moving its bytes, or there was no time"
    )


class FinalsResult(Standing):
    """How finals ended."""

    proofs: tuple[Proof, ...] = ()
    audits: dict[str, CheckResult] = Field(
        default_factory=dict,
        description="of every finalist that is left, by its artifact: made in these finals, or before in this study",
    )


class Lineup(Model):
    """Who is in the finals, and by which rules they are judged."""

    finalists: tuple[Finalist, ...]
    baselines: tuple[str, ...] = Field(description="the pinned baseline, one a problem")
    tie: float = Field(description="relative: ratios within it are ties")
    aa_races: int = Field(default=0, description="how many A/A races the tie band comes from; it has a least width")
    objective: Objective = "mean"
    raced: tuple[tuple[tuple[float, ...], ...], ...] = Field(
        default=(),
        description="ln(t_incumbent / t_baseline) in undisturbed races of the search: [incumbent][race][problem]",
    )
    considered: tuple[int, ...] = Field(
        default=(), description="numbers of all that deserved to be in them, also of those that failed here"
    )


class FinalsRecord(Lineup):
    """Finals as they were recorded."""

    id: int
    study: str
    started_at: datetime
    finished_at: datetime | None = Field(description="None: still running, or they were killed")
    host: str
    environment: dict[str, str]
    heats: tuple[Heat, ...] = Field(description="one a process, with the raw times")
    standing: FinalsResult | None = Field(description="their result; None while they are not over")
    revoked: tuple[int, ...] = Field(description="numbers of finalists that were revoked since")

    @property
    def blocks(self) -> int:
        """Of one heat."""
        return max((len(us) for heat in self.heats for us in heat.baseline_us), default=0)

    @property
    def by_digest(self) -> dict[str, Finalist]:
        """The finalists by the artifact that raced."""
        return {finalist.digest: finalist for finalist in self.finalists}


class Validation(Model):
    """A variant on problems that were not tuned: what the gate found of it there, and what it takes."""

    number: int = Field(description="Optuna's trial number")
    digest: str = Field(description="of its artifact")
    problems: tuple[Problem, ...]
    vary: tuple[str, ...] = Field(description="the lengths in which they differ, one number in each of them")
    baselines: tuple[str, ...] = Field(description="the pinned baseline, one a problem")
    gate: GateReport | None = Field(description="None: it could not be judged")
    fault: Fault | None = Field(default=None, description="why it is not to be used on any of them")
    heats: tuple[Heat, ...] = Field(default=(), description="one a process, with the raw times")


class ValidationRecord(Validation):
    """A validation as it was recorded."""

    id: int
    study: str
    recorded_at: datetime
    host: str
    environment: dict[str, str]


class MeasuredTrial(Model):
    """A trial with a latency that stands.

    Over several problems, microseconds are geometric means, or the worst problem's where the objective is the largest
    log-ratio.
    """

    number: int = Field(description="Optuna's trial number")
    variant: Variant
    verdict: Verdict
    artifact: str | None = Field(description="digest of the artifact that was measured: a duplicate has its original's")
    log_ratio: LogRatio = Field(description="ln(t_variant / t_baseline), the objective")
    median_us: float = Field(description="microseconds of one forward of the variant")
    baseline_us: float = Field(description="microseconds of one forward of the baseline, in the same blocks")
    censored: bool = Field(description="stopped early because it was clearly slower: an estimate")


REVOKED = "store.revoked"
"""Fault code of a trial that was revoked after it had been recorded."""


class ListedTrial(Model):
    """A trial in a list: its parameters and what came of it, without the documents behind that.

    Microseconds and ends are those of `MeasuredTrial`. What has no latency that stands has none of them.
    """

    number: int = Field(description="Optuna's trial number")
    session_id: int = Field(description="the run that judged it")
    variant_digest: str
    verdict: Verdict
    judged: bool = Field(description="whether the verdict says something of the variant")
    fault_code: str | None = Field(description="code of the check or the step that turned it down")
    fault_case: str | None = Field(description="in which case of the gate")
    fault_detail: str | None = Field(description="what was found there")
    original: str | None = Field(description="a duplicate's: digest of the artifact that was measured in its place")
    objective: float | None = Field(
        description="ln(t_variant / t_baseline), an estimate of the search; None: it has no latency that stands"
    )
    log_low: float | None
    log_high: float | None
    median_us: float | None = Field(description="microseconds of one forward")
    baseline_us: float | None = Field(description="of the baseline in the same blocks")
    censored: bool = Field(description="stopped early because it was clearly slower: an estimate")
    seconds: float = Field(description="that building and judging took")
    build_s: float = Field(description="of them the build")
    check_s: float = Field(description="the gate, and what belongs to it")
    measure_s: float = Field(description="the race")
    build_began: datetime | None = Field(description="None: nothing was built")
    recorded_at: datetime
    revoked_at: datetime | None
    revoked_reason: str | None = Field(description="why its latency was taken back")
    parameters: dict[str, Value] = Field(description="IMPL first, then by name")

    @property
    def revoked(self) -> bool:
        """Whether its latency was taken back after it had been recorded."""
        return self.revoked_at is not None

    @property
    def cause(self) -> str | None:
        """The code for which it was rejected; None where it was not."""
        if self.revoked:
            return REVOKED
        return (self.fault_code or self.verdict.value) if self.judged and not self.verdict.has_latency else None

    @property
    def speedup(self) -> Speedup | None:
        """t_baseline / t_variant, an estimate of the search; None: it has no latency that stands."""
        if self.objective is None or self.log_low is None or self.log_high is None:
            return None
        return LogRatio(low=self.log_low, mid=self.objective, high=self.log_high).speedup


class Revision(Model):
    """Changes whenever something of a study changes. Two that are equal: nothing has happened between them."""

    last: int = Field(description="key of the trial recorded last; 0: none")
    trials: int
    standing: int = Field(description="trials that have an objective")
    revoked: int
    others: tuple[int, ...] = Field(
        description="how many runs, heats, finals and profiles there are; of the note a sum"
    )

    @property
    def tag(self) -> str:
        """The revision as a word."""
        return "-".join(map("{:x}".format, (self.last, self.trials, self.standing, self.revoked, *self.others)))


class StudyProgress(Model):
    """How far a study is."""

    name: str
    space: str
    device: str
    problems: tuple[Problem, ...]
    cache: Literal["cold", "warm"] = Field(description="of the device, before each forward")
    sampler: str
    started_at: datetime
    last_activity: datetime
    running: bool = Field(description="a living driver is working on it now")
    judged: int = Field(description="trials whose outcome says something about their variant")
    by_verdict: dict[Verdict, int] = Field(description="recorded trials, revoked ones left out")
    by_fault: dict[str, int] = Field(description="rejected trials by the code of the first failure")
    revoked: int
    note: str = Field(default="", description="what people say of it")
    disturbed: tuple[int, ...] = Field(
        default=(), description="trials of variants that were measured on a disturbed machine alone: they do not count"
    )

    @property
    def rejected(self) -> int:
        """Trials that the gate or the build turned down."""
        return sum(count for verdict, count in self.by_verdict.items() if verdict.judges and not verdict.has_latency)


Health = Literal["healthy", "quarantined"]


class Holder(Model):
    """A living process that holds a sweep or a device."""

    host: str
    pid: int
    since: datetime
    seen: datetime = Field(description="when it last said that it lives")
    doing: str


class SweepRecord(Model):
    """A sweep as it is now."""

    id: int
    key: str | None = Field(description="under which it can be asked for again without being made twice")
    name: str
    state: State
    wish: Wish | None = Field(description="what its worker has been asked to do, and has not done yet")
    group: int | None = Field(description="the first sweep of the group that it was asked for with; null: none")
    priority: int = Field(description="larger goes first")
    request: SweepRequest
    foreground: bool = Field(description="it belongs to a command in a terminal; no worker takes it")
    study: str | None = Field(description="its study; null: not begun")
    found: Found | None = Field(description="what it had found when its last run ended; null: no run has ended")
    detail: str = Field(description="why it is in its state")
    attempts: int = Field(description="runs in a row that ended by a fault of the machinery")
    spent_s: float = Field(description="seconds of work over all runs")
    submitted_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    not_before: datetime | None = Field(description="no worker takes it before")
    holder: Holder | None = Field(default=None, description="the living process that works on it")


class EventRecord(Model):
    """Something that happened."""

    id: int
    at: datetime
    sweep: int | None
    device: str | None
    kind: str
    text: str = Field(description="for people, one line")
    data: dict[str, JsonValue] = Field(description="for programs")


class DeviceRecord(Model):
    """A device that a worker serves or has served."""

    name: str = Field(description="host and the device's own name there")
    host: str
    backend: str
    model: str
    words: tuple[str, ...] = Field(
        description="what --devices calls it in its worker, its own name first, then that of all devices"
    )
    health: Health
    reason: str = Field(description="why it is in quarantine")
    remedy: str = Field(description="what ends the quarantine")
    changed_at: datetime
    seen_at: datetime
    holder: Holder | None = Field(default=None, description="the living worker that serves it")
