"""What the store gives of sweeps, events and devices: frozen values. Times are the database's, in UTC."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field, JsonValue

from autotuner.values.model import Model
from autotuner.values.sweep import Found, State, SweepRequest, Wish

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
