"""How much of its space a study has judged. The space is enumerated anew; the counts are the database's."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from autotuner.spaces.space import Space, SpaceFile
from autotuner.store import Store, figures, queries
from autotuner.values.model import Model
from autotuner.values.variant import Value


class Covered(Model):
    """A value of a parameter."""

    value: Value
    points: int = Field(description="valid points that have it")
    judged: int
    right: int = Field(description="with a latency")
    best_speedup: float | None


class Coverage(Model):
    """How much of a space was judged."""

    points: int = Field(description="valid ones")
    judged: int
    parameters: dict[str, tuple[Covered, ...]]


def coverage(store: Store, study: str) -> Coverage:
    """How much of its space the study has judged, and how often each value. Raises StoreError, or SpaceError where the
    recorded space cannot be read."""
    record = queries.study(store, study)
    space = Space.enumerate(SpaceFile.stored(record.space_document), record.device.facts)
    counted = figures.coverage(store, study)
    parameters = {}
    for column, name in enumerate(space.parameters):
        places, counts = np.unique(space.rows[:, column], return_counts=True)
        points = dict(zip(places.tolist(), counts.tolist(), strict=True))
        by_value = {each.value: each for each in counted.get(name, ())}
        parameters[name] = tuple(
            Covered(
                value=value,
                points=points.get(place, 0),
                judged=by_value[value].judged if value in by_value else 0,
                right=by_value[value].right if value in by_value else 0,
                best_speedup=by_value[value].best_speedup if value in by_value else None,
            )
            for place, value in enumerate(space.file.parameters[name].values)
        )
    judged = queries.judged_and_best(store, study)[0]
    return Coverage(points=len(space), judged=judged, parameters=parameters)
