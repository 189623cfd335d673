"""How much of its space a study has judged. The space is enumerated anew; the counts are the database's."""

import json
from functools import lru_cache

import numpy as np
from pydantic import Field

from autotuner.spaces.space import Space, SpaceFile
from autotuner.store import Store, figures, queries
from autotuner.store.figures import ValueCoverage
from autotuner.tuning.finals import standings
from autotuner.values.model import Model
from autotuner.values.variant import Value

KEPT = 8
"""Spaces whose points are kept counted: a large one takes seconds."""


class Coverage(Model):
    """How much of a space was judged."""

    points: int = Field(description="valid ones")
    judged: int
    parameters: dict[str, tuple[ValueCoverage, ...]]


def coverage(store: Store, study: str) -> Coverage:
    """How much of its space the study has judged, and how often each value. Raises StoreError, or SpaceError where the
    recorded space cannot be read."""
    record = queries.study(store, study)
    points, by_name = _counted(record.space_document, json.dumps(record.device.facts, sort_keys=True))
    found, confirmed = figures.coverage(store, study), _confirmed(store, study)
    parameters = {}
    for name, values in by_name.items():
        judged = {each.value: each for each in found.get(name, ())}
        parameters[name] = tuple(
            _covered(value, count, judged.get(value), confirmed.get((name, value))) for value, count in values
        )
    return Coverage(points=points, judged=queries.judged_count(store, study), parameters=parameters)


@lru_cache(KEPT)
def _counted(space_document: str, facts: str) -> tuple[int, dict[str, tuple[tuple[Value, int], ...]]]:
    """How many valid points a space has, in all and for each value of each parameter."""
    space = Space.enumerate(SpaceFile.stored(space_document), json.loads(facts))
    counted = {}
    for column, name in enumerate(space.parameters):
        places, counts = np.unique(space.rows[:, column], return_counts=True)
        points = dict(zip(places.tolist(), counts.tolist(), strict=True))
        values = space.values[name]
        counted[name] = tuple((value, points.get(place, 0)) for place, value in enumerate(values))
    return len(space), counted


def _confirmed(store: Store, study: str) -> dict[tuple[str, Value], float]:
    """The largest confirmed speedup of the variants with a value of a parameter."""
    best: dict[tuple[str, Value], float] = {}
    for entry in standings.confirmed_entries(store, study):
        assert entry.confirmed is not None  # of each of these
        for key in entry.variant.point.items():
            best[key] = max(best.get(key, 0.0), entry.confirmed.mid)
    return best


def _covered(value: Value, points: int, found: ValueCoverage | None, confirmed: float | None) -> ValueCoverage:
    """With the points that have the value, and what was confirmed of a variant with it."""
    more = {} if confirmed is None or found is None else {"best_speedup": confirmed, "best_confirmed": True}
    return (found or ValueCoverage(value=value)).model_copy(update={"points": points, **more})
