"""A sweep as it is asked for, and what becomes of it."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from autotuner.values.model import Model

MOST = 2**31 - 1
"""Of a priority or a number of trials: what every database keeps."""


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


class SweepRequest(Model):
    """All that a worker has to know. A change of the space's file after this was made does not touch it."""

    name: str = Field(description="for people; the space's name unless they said another")
    backend: str = Field(description="the kind of device")
    space_document: str = Field(description="the whole space file as JSON, its limits and problems included")
    problems: tuple[str, ...] = Field(description="as tables write them")
    trials: int = Field(default=60, ge=1, le=MOST, description="judged variants, those of earlier runs included")
    minutes: float | None = Field(
        default=None, gt=0, description="of work over all runs; neither pauses nor any waiting count"
    )
    sampler: str = "evolution"
    seed: int = Field(default=0, ge=0, le=MOST)
    like: str | None = Field(default=None, description="the study to start from")
    cold: bool = Field(default=False, description="starts without what related studies know")
    devices: str | None = Field(default=None, description="such as cuda:0; None: whatever the worker serves")
    until_converged: bool = False
    finals: bool = True
    finals_minutes: float = Field(default=2.0, gt=0)
    patience_minutes: float = Field(default=10.0, ge=0, description="of one wait for a calm machine")
    calm: bool = Field(default=False, description="believes that nobody disturbs the machine when it starts")
