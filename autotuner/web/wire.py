"""What the API takes and gives. What it gives are the views, as people are shown them: their columns name the fields. A
column of the store or a field of a record may be renamed without any of these; tests/web/test_api.py holds what each is
called."""

from datetime import datetime
from types import GenericAlias
from typing import Annotated, Any

from pydantic import Field, StringConstraints, create_model

from autotuner.values.model import Model
from autotuner.values.ratio import Weight
from autotuner.values.sweep import MOST, SweepChange, SweepOptions
from autotuner.views.figure_tables import COMPARISON, PACE, cost_columns, history_columns
from autotuner.views.leaderboard import leaderboard_columns
from autotuner.views.studies_table import Finals, study_columns
from autotuner.views.sweep_tables import DEVICES, EVENTS, SWEEPS
from autotuner.views.table import data, model_of
from autotuner.views.trials_table import trial_columns

Priority = Annotated[int, Field(ge=-1000, le=1000)]
"""What a caller elsewhere may ask for; more is for who waits in a terminal."""
Text = Annotated[str, StringConstraints(max_length=300, pattern=r"^[^\x00-\x1f\x7f]*$")]


def listed(name: str, says: str, facts: dict[str, Any] | None = None, **lists: Any) -> type[Model]:
    """An answer with some facts, and lists of others."""
    fields: dict[str, Any] = {key: (kind, ...) for key, kind in (facts or {}).items()}
    fields |= {key: (GenericAlias(list, (kind,)), ...) for key, kind in lists.items()}
    return create_model(name, __base__=Model, __doc__=says, **fields)


class Refusal(Model):
    """Why a request was refused."""

    error: str


class Health(Model):
    """The server is up and can read its store."""

    version: str
    store: str
    writes: bool = Field(description="whether a caller with the token may change anything")
    studies: int


# Answers that are views ----------------------------------------------------------------------------------------------

Study = model_of("Study", "A study at a glance.", study_columns())
StudyList = listed("StudyList", "Every study, the most recently active first.", studies=Study)
Ranked = model_of("Ranked", "A variant that passed the gate, on the leaderboard.", leaderboard_columns())
Leaderboard = listed(
    "Leaderboard",
    "The fastest variants of a study, those that were confirmed first; `tie`: relative, ratios within it are ties.",
    {"study": str, "baseline": str, "tie": float},
    variants=Ranked,
)
Trial = model_of("Trial", "A trial in a line; null for what has no latency that stands.", trial_columns())
TrialList = listed(
    "TrialList", "Some trials of a study, by number; `count`: of all.", {"study": str, "count": int}, trials=Trial
)
Improvement = model_of("Improvement", "A trial that was better than all before it.", history_columns())
History = listed(
    "History", "Each trial that was the best until then, the first one first.", {"study": str}, improvements=Improvement
)
VerdictCost = model_of("VerdictCost", "What trials of one verdict cost.", cost_columns())
Pace = model_of("Pace", "How fast a study is judged.", PACE)
Costs = listed(
    "Costs",
    "What a study has cost, the dearest verdict first.",
    {"study": str, "pace": Pace | None},
    by_verdict=VerdictCost,
)
Comparison = model_of(
    "Comparison",
    "Two studies, by the variants that both have judged.",
    [data("first", str), data("second", str), *COMPARISON],
)
Device = model_of("Device", "A device that a worker serves or has served.", DEVICES)
Sweep = model_of("Sweep", "A sweep: what was asked for, where it is, and what it has found.", SWEEPS)
SweepNow = model_of(
    "SweepNow",
    "A sweep at a revision.",
    [*SWEEPS, data("revision", int, "number of its last event: pass it as `since` to wait for the next")],
)
SweepList = listed(
    "SweepList", "The queue, in the order in which sweeps are due; `count`: of all.", {"count": int}, sweeps=Sweep
)
Event = model_of("Event", "Something that happened to a sweep or a device.", EVENTS)
EventList = listed("EventList", "What happened to a sweep, the oldest first.", events=Event)
BestVariant = listed(
    "BestVariant",
    "The variant to use. Its gate report is that of its trial; `export` has it with its proof.",
    {"study": str, "variant": Ranked, "recorded_at": datetime, "finals": Finals | None},
)
DeviceList = listed("DeviceList", "Devices that workers serve or have served.", devices=Device)


class ClearRequest(Model):
    """Devices whose quarantine is to end."""

    names: tuple[Text, ...] = Field(min_length=1, max_length=64)


class StudyChange(Model):
    """What is to change of a study; what is null stays."""

    name: Text | None = Field(default=None, min_length=1, max_length=200)
    note: Annotated[str, StringConstraints(max_length=1000)] | None = None


class StudyCopy(Model):
    """Where a study is to be copied."""

    to: Text = Field(description="a store that the server was started with, as `--copy-to`")


# The queue ------------------------------------------------------------------------------------------------------------


class NewSweep(SweepOptions):
    """A sweep that is asked for: a space that the server has, by its name, and problems; never a file."""

    space: Text = Field(description="name of a space; GET /spaces lists them")
    problems: tuple[Text, ...] = Field(
        default=(), max_length=64, description="as tables write them; the space's if empty"
    )
    weights: tuple[Weight, ...] = Field(default=(), description="one for each problem; they count alike if empty")
    name: Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=r"^[\w .:+-]+$")] | None = None
    priority: Priority = Field(default=0, description="larger goes first")
    each: bool = Field(default=False, description="a group: a sweep for each problem; they share the minutes")
    threads: int | None = Field(default=None, ge=1, le=MOST, description="that both sides may use")
    devices: Text | None = Field(default=None, description="such as cuda:0; null: any")
    like: Text | None = Field(default=None, alias="from", description="name of the study to start from")
    every: Text | None = Field(default=None, description="a time of day, such as 02:00: it comes again every day")
    regress: bool = Field(default=False, description="with `every`: at the end, a race against the night before")
    start: tuple[Text, ...] = Field(default=(), max_length=64, description="points to judge first, NAME=VALUE ...")


class ChangeRequest(SweepChange):
    """What is to change of a sweep."""

    priority: Priority | None = None


ASKED = (ClearRequest, StudyChange, StudyCopy, NewSweep, ChangeRequest)
"""What requests are made of."""


class ListedSpace(Model):
    """A space that a sweep can be asked for."""

    name: str
    backend: str
    title: str
    problems: tuple[str, ...]


class SpaceList(Model):
    """Every space that the server has."""

    spaces: tuple[ListedSpace, ...]
