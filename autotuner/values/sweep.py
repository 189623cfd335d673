"""A sweep as it is asked for, and what becomes of it."""

from __future__ import annotations

import math
from datetime import datetime
from enum import StrEnum
from typing import Literal

from pydantic import Field

from autotuner.values.model import Model
from autotuner.values.problem import Problem
from autotuner.values.ratio import Speedup
from autotuner.values.variant import Variant

MOST = 2**31 - 1
"""Of a priority or a number of trials: what every database keeps."""
FINALS_MINUTES = 2.0
"""Of finals, unless the user says otherwise, or there is less time in all."""
LEAST_FINALS = 1 / 3
"""Of finals, where that is no more than half of the minutes."""


class State(StrEnum):
    """Where a sweep is."""

    QUEUED = "queued"
    RUNNING = "running"
    PAUSED = "paused"
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"

    @property
    def is_over(self) -> bool:
        """Whether nothing more happens unless somebody asks for it again."""
        return self in (State.DONE, State.CANCELLED, State.FAILED)


class Wish(StrEnum):
    """What somebody wants of a sweep that a worker has."""

    PAUSE = "pause"
    CANCEL = "cancel"


class Found(Model):
    """What a sweep has found in its study."""

    judged: int = Field(default=0, description="variants judged, those of earlier sweeps of the study included")
    best_speedup: float | None = Field(
        default=None, description="t_baseline / t_variant of the trial to use; null: there is none"
    )
    best_confirmed: bool = Field(default=False, description="by finals; else it is the estimate of the search")


class SweepOptions(Model):
    """What may be said of any sweep, by whoever asks for it."""

    trials: int = Field(default=60, ge=1, le=MOST, description="judged variants, those of earlier runs included")
    minutes: float | None = Field(
        default=None,
        gt=0,
        le=1e6,
        description="wall time over all runs, finals and waiting included; only pauses do not count",
    )
    sampler: str = Field(default="evolution", max_length=300)
    seed: int = Field(default=0, ge=0, le=MOST)
    cold: bool = Field(default=False, description="starts without what related studies know")
    first_points: Literal["all", "others", "none"] = Field(
        default="all", description="of those that a kernel family ships; others: without those of similar problems"
    )
    until_converged: bool = False
    finals: bool = True
    finals_minutes: float | None = Field(
        default=None,
        gt=0,
        le=1e6,
        description="of the minutes; null: two, and a third of the minutes at most, or up to 20 s a half",
    )
    patience_minutes: float = Field(default=10.0, ge=0, le=1e6, description="of a wait for a device that another times")
    quiet_within_minutes: float = Field(
        default=0.0, ge=0, le=1e6, description="of the wait for a quiet machine, at the start"
    )


class SweepChange(Model):
    """What may be changed of a sweep that was asked for; what is null stays."""

    trials: int | None = Field(default=None, ge=1, le=MOST)
    minutes: float | None = Field(default=None, gt=0, le=1e6)
    priority: int | None = Field(default=None, ge=-MOST, le=MOST)


class Earlier(Model):
    """What an export, or a sweep of the night before, says of its variant: later ones race against it."""

    trial: int
    exported_at: datetime
    device: str
    problems: tuple[Problem, ...]
    variant: Variant
    artifact: str
    library_sha256: str
    baselines: tuple[str, ...] = Field(description="one a problem")
    confirmed: tuple[Speedup | None, ...] = Field(
        description="one a problem: t_baseline / t_variant by finals of this binary; null: of another, or none"
    )


class Daily(Model):
    """That a sweep comes every day."""

    at: str = Field(description="time of day, by the clock of the machine that asks")
    trials: int = Field(description="that each of them adds to its study")
    due: datetime = Field(description="when this one is due")
    regress: bool = Field(default=False, description="races the best of before against the best of now, at the end")
    last: Earlier | None = Field(default=None, description="the best of before; null: it is the first, or has none")


class SweepRequest(SweepOptions):
    """All that a worker has to know. A change of the space's file after this was made does not touch it."""

    name: str = Field(description="for people; the space's name unless they said another")
    backend: str = Field(description="the kind of device")
    space_document: str = Field(description="the whole space file as JSON, its limits and problems included")
    problems: tuple[str, ...] = Field(description="as tables write them")
    like: str | None = Field(default=None, description="the study to start from")
    start: tuple[str, ...] = Field(default=(), description="points that a new study judges first, as NAME=VALUE ...")
    devices: str | None = Field(default=None, description="such as cuda:0; None: whatever the worker serves")
    every: Daily | None = Field(default=None, description="it comes every day; None: once")

    def changed(self, change: SweepChange) -> SweepRequest:
        """The request with another budget."""
        return self.model_copy(update=change.model_dump(include={"trials", "minutes"}, exclude_none=True))

    @property
    def finals_s(self) -> float:
        """Seconds of finals; 0 without. Less than LEAST_FINALS confirms little."""
        minutes = math.inf if self.minutes is None else self.minutes
        usual = min(FINALS_MINUTES, max(minutes / 3, min(minutes / 2, LEAST_FINALS)))
        return 60 * (self.finals_minutes or usual) if self.finals else 0.0
