"""What the store takes and gives: frozen values, never a row of a table. Times are in UTC."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from autotuner.model import Model
from autotuner.outcome import Calibration, Device, Interval, Outcome
from autotuner.problem import Problem
from autotuner.variant import Variant
from autotuner.verdict import Verdict


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


class JudgedTrial(Model):
    """A trial of a study, by Optuna's number, with its outcome."""

    number: int
    outcome: Outcome


class TrialRecord(Model):
    """A trial as it was recorded. A revoked one keeps its outcome here, for the record, and nowhere else."""

    study: str
    number: int
    outcome: Outcome
    session: SessionRecord
    recorded_at: datetime
    revoked_at: datetime | None = None
    revoked_reason: str | None = None


class Entry(Model):
    """A line of the leaderboard. Over several problems, microseconds are geometric means."""

    rank: int
    number: int = Field(description="Optuna's trial number")
    variant: Variant
    verdict: Verdict
    median_us: float = Field(description="microseconds of one forward of the variant")
    baseline_us: float = Field(description="microseconds of one forward of the baseline, in the same blocks")
    speedup: Interval = Field(description="t_baseline / t_variant; `median` is exp(-objective)")
    censored: bool = Field(description="stopped early because it was clearly slower: an estimate")


class Best(Model):
    """The best fully measured trial of a study, with all that is known of it."""

    entry: Entry
    record: TrialRecord

    @property
    def outcome(self) -> Outcome:
        """The whole outcome of the best trial."""
        return self.record.outcome


class Spread(Model):
    """How far apart the right variants of a study are; the slow ones by the estimate at which they were stopped."""

    measured: int
    best_us: float
    median_us: float
    worst_us: float
    worst_to_best: float = Field(description="t_worst / t_best, from the objectives")


class StudySummary(Model):
    """A study at a glance."""

    name: str
    space: str
    device: str
    problems: tuple[Problem, ...]
    cache: Literal["cold", "warm"]
    sampler: str
    started_at: datetime
    last_activity: datetime
    running: bool = Field(description="a living driver is working on it now")
    judged: int = Field(description="trials whose outcome says something about their variant")
    by_verdict: dict[Verdict, int] = Field(description="recorded trials, revoked ones left out")
    by_fault: dict[str, int] = Field(description="rejected trials by the code of the first failure")
    revoked: int
    best_number: int | None = Field(description="trial number of the best; None when nothing is fully measured")
    best_speedup: float | None
    best_us: float | None = Field(description="its median, microseconds")
    spread: Spread | None

    @property
    def rejected(self) -> int:
        """Trials that the gate or the build turned down."""
        return sum(count for verdict, count in self.by_verdict.items() if verdict.judges and not verdict.has_latency)
