"""What the API takes and gives of sweeps."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from autotuner.jobs.outlook import Outlook
from autotuner.store.sweep_records import DeviceRecord
from autotuner.values.model import Model
from autotuner.values.sweep import MOST

Text = Annotated[str, StringConstraints(max_length=300, pattern=r"^[^\x00-\x1f\x7f]*$")]


class SweepAsk(Model):
    """A sweep that is asked for: a space that the server has, by its name, and problems; never a file."""

    space: Text = Field(description="name of a space; GET /spaces lists them")
    problems: tuple[Text, ...] = Field(
        default=(), max_length=64, description="as tables write them; the space's if empty"
    )
    name: Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=r"^[\w .:+-]+$")] | None = None
    trials: int = Field(default=60, ge=1, le=MOST)
    minutes: float | None = Field(default=None, gt=0, le=1e6)
    priority: int = Field(default=0, ge=-1000, le=1000, description="larger goes first")
    seed: int = Field(default=0, ge=0, le=MOST)
    sampler: Text = "evolution"
    until_converged: bool = False
    finals: bool = True
    finals_minutes: float = Field(default=2.0, gt=0, le=1e6)
    patience_minutes: float = Field(default=10.0, ge=0, le=1e6)
    calm: bool = Field(default=False, description="believes that nobody disturbs the machine when it starts")


class SweepView(Model):
    """A sweep as it is now."""

    revision: int = Field(description="number of its last event: pass it as `since` to wait for the next")
    outlook: Outlook


class SweepList(Model):
    """The queue, in the order in which sweeps are due."""

    sweeps: tuple[Outlook, ...]


class SpaceEntry(Model):
    """A space that a sweep can be asked for."""

    name: str
    backend: str
    title: str
    problems: tuple[str, ...]


class SpaceList(Model):
    """Every space that the server has."""

    spaces: tuple[SpaceEntry, ...]


class ClearRequest(Model):
    """Devices whose quarantine is to end."""

    names: tuple[Text, ...] = Field(min_length=1, max_length=64)


class Served(Model):
    """The devices that workers serve or have served."""

    devices: tuple[DeviceRecord, ...]
