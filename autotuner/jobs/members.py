"""The members of a sweep set as they are: which study each has, and how much of the budget it had."""

from __future__ import annotations

from pydantic import Field

from autotuner.spaces.space import SpaceFile
from autotuner.store import Store, StudyRecord, queries
from autotuner.store.sweep_records import SweepRecord
from autotuner.tuning import standings
from autotuner.values.errors import StoreError
from autotuner.values.model import Model


class MemberProgress(Model):
    """How far a member is."""

    space: str = Field(description="name of its space")
    problems: tuple[str, ...]
    weight: float = Field(description="what an improvement is worth beside those of other members")
    study: str | None = Field(description="null: not begun")
    judged: int = Field(description="variants judged, those of other sweeps of its study included")
    best_speedup: float | None = Field(description="of the trial to use, against the baseline; confirmed where it is")
    best_confirmed: bool = Field(default=False, description="by finals; else it is the estimate of the search")


def members(store: Store, sweep: SweepRecord) -> tuple[MemberProgress, ...]:
    """Every member in the order in which they begin; a sweep of one space has one."""
    begun = [record for name in sweep.studies if (record := _record(store, name)) is not None]
    found = []
    for member in sweep.request.members:
        file = SpaceFile.stored(member.space_document)
        own = next((each for each in begun if each.problems == file.problems), None)
        if own is not None:
            begun.remove(own)
        judged = 0 if own is None else queries.judged_and_best(store, own.name)[0]
        best = None if own is None else standings.quoted(store, own.name)
        found.append(
            MemberProgress(
                space=file.name,
                problems=tuple(map(str, file.problems)),
                weight=member.weight,
                study=None if own is None else own.name,
                judged=judged,
                best_speedup=None if best is None else best.speedup,
                best_confirmed=best is not None and best.confirmed,
            )
        )
    return tuple(found)


def _record(store: Store, study: str) -> StudyRecord | None:
    try:
        return queries.study(store, study)
    except StoreError:  # begun, and killed before the study was made
        return None
