"""What the API takes and gives beside the package's own documents."""

from __future__ import annotations

from pydantic import Field

from autotuner.store.figures import BaselineAt, Comparison, Improvement
from autotuner.store.sweep_records import DeviceRecord
from autotuner.tuning.standings import Entry, StudySummary
from autotuner.values.model import Model
from autotuner.values.problem import Problem
from autotuner.values.variant import Value
from autotuner.views.trial_lines import TrialLine


class Refusal(Model):
    """Why a request was refused."""

    error: str


class Health(Model):
    """The server is up and can read its store."""

    version: str
    store: str
    writes: bool = Field(description="whether a caller with the token may change anything")
    studies: int


class StudyList(Model):
    """Every study, the most recently active first."""

    studies: tuple[StudySummary, ...]


class Leaderboard(Model):
    """The fastest variants of a study, those that were confirmed first."""

    study: str
    baseline: str
    tie: float = Field(description="relative: ratios within it are ties")
    entries: tuple[Entry, ...]


class TrialList(Model):
    """Some trials of a study, by number."""

    study: str
    count: int = Field(description="of all trials")
    trials: tuple[TrialLine, ...]


class History(Model):
    """Each trial of a study that was the best until then, the first one first."""

    study: str
    improvements: tuple[Improvement, ...]


class Baselines(Model):
    """What the baselines of a study took at each start of a driver, the oldest first."""

    study: str
    baselines: tuple[BaselineAt, ...]


class ComparedStudies(Comparison):
    """Two studies side by side."""

    first: str
    second: str


class StudyDevice(Model):
    """A device that studies of this store were made on, by its model."""

    name: str
    backend: str
    studies: tuple[str, ...]
    facts: dict[str, Value | bool]
    running: tuple[str, ...] = Field(description="studies on which a driver is at work now")


class DeviceList(Model):
    """Every device of the store."""

    devices: tuple[DeviceRecord, ...] = Field(description="that workers serve or have served")
    models: tuple[StudyDevice, ...] = Field(description="that studies were made on")


class GateRequest(Model):
    """One variant of a family in the operator's folder."""

    family: str = Field(max_length=200, description="name of a folder in the operator's folder")
    device: str = Field(max_length=50, description="kind of device, as in kernel.toml")
    implementation: str = Field(max_length=200, description="IMPL")
    parameters: dict[str, Value] = Field(default_factory=dict, max_length=100)
    problem: Problem = Field(description="what it is judged on")
    threads: int | None = Field(default=None, ge=1, le=4096, description="it may use, on a device that has them; all")
