"""The judged trials of a study as points of its space: where variants were rejected: the values, and pairs of values,
that say it in the fewest words."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain, combinations
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from autotuner.spaces.space import Space
from autotuner.store import JudgedTrial
from autotuner.values.errors import StoreError
from autotuner.values.model import Model
from autotuner.values.variant import Value

NONE: Mapping[int, float] = MappingProxyType({})


class JudgedPoints:
    """What the surrogate and the tables of rejects need of the trials, in the order of their ends."""

    def __init__(self, space: Space, trials: Sequence[JudgedTrial], corrections: Mapping[int, float] = NONE) -> None:
        """`corrections`: objectives that count instead of those of the search, by the trial's number.

        Raises StoreError for a trial whose point the space does not have.
        """
        objectives = [
            corrections.get(each.number, each.objective) if math.isfinite(each.objective) else math.inf
            for each in trials
        ]
        places = [space.index_of(each.point) for each in trials]
        if None in places:
            odd = trials[places.index(None)].number
            raise StoreError(f"trial {odd} is of a point that the study's space does not have: restore a copy")
        self.points = np.array(places, dtype=np.int64)
        self.objectives = np.array(objectives, dtype=np.float64)
        self.measured = np.isfinite(self.objectives)
        self.confirmed = np.array([each.number in corrections for each in trials], dtype=bool)
        """Those whose objective is no estimate of the search."""
        self.codes = [each.code for each in trials]

    def __len__(self) -> int:
        return len(self.points)


Indices = NDArray[np.int64]
Mask = NDArray[np.bool_]

LEAST = 3
"""Fewest rejects of a region."""
PASS = 3
"""Rejects that weigh as much as one variant that passed: a region has more than three quarters rejects."""


class RejectedWhere(Model):
    """A value, or two of different parameters, with which all or most variants were rejected."""

    where: dict[str, Value]
    judged: int
    rejected: int
    codes: dict[str, int] = Field(description="of the failures, the most frequent first")


def rejected_where(
    space: Space, points: Indices, codes: Sequence[str | None]
) -> tuple[tuple[RejectedWhere, ...], dict[str, int]]:
    """Regions of the judged points (m,), the clearest first, and the codes of the rejects that are in none of them.

    `codes` say why each was rejected, None for what passed. One region is found after the other, each among the trials
    that the ones before left over (separate and conquer: J. Fürnkranz, 1999), by its rejects less its passes, weighted;
    of equals one value comes before two. The counts are of all trials of the region.
    """
    rows, bad = space.rows[points], np.array([code is not None for code in codes], dtype=np.bool_)
    left = np.ones(len(rows), dtype=np.bool_)
    found = []
    while bad[left].any():
        columns = _clearest(rows, bad, left)
        if columns is None:
            break
        inside = np.logical_and.reduce([rows[:, column] == place for column, place in columns])
        left &= ~inside
        names = {space.parameters[column]: place for column, place in columns}
        found.append(
            RejectedWhere(
                where={name: space.values[name][place] for name, place in names.items()},
                judged=int(inside.sum()),
                rejected=int((inside & bad).sum()),
                codes=_counts(codes, inside),
            )
        )
    return tuple(found), _counts(codes, left)


def _clearest(rows: NDArray[np.int16], bad: Mask, left: Mask) -> list[tuple[int, int]] | None:
    """The columns of the clearest region and its values' places there; None when no region is clear."""
    best, clearest = 0, None
    every = range(rows.shape[1])
    for columns in map(list, chain(combinations(every, 1), combinations(every, 2))):
        among = left & (rows[:, columns] >= 0).all(axis=1)
        if not bad[among].any():
            continue
        places, region = np.unique(rows[among][:, columns], axis=0, return_inverse=True)
        judged, rejected = np.bincount(region.ravel()), np.bincount(region.ravel(), bad[among]).astype(int)
        score = np.where(rejected >= LEAST, rejected - PASS * (judged - rejected), 0)
        top = int(np.argmax(score))
        if score[top] > best:
            best, clearest = int(score[top]), list(zip(columns, places[top].tolist(), strict=True))
    return clearest


def _counts(codes: Sequence[str | None], among: Mask) -> dict[str, int]:
    counted = Counter(code for code, inside in zip(codes, among, strict=True) if inside and code is not None)
    return dict(sorted(counted.items(), key=lambda each: (-each[1], each[0])))
