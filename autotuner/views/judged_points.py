"""The judged trials of a study as points of its space."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from autotuner.spaces.space import Space
from autotuner.store import JudgedTrial
from autotuner.values.errors import StoreError

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
        self.points = np.array([_index(space, each) for each in trials], dtype=np.int64)
        self.objectives = np.array(objectives, dtype=np.float64)
        self.measured = np.isfinite(self.objectives)
        self.confirmed = np.array([each.number in corrections for each in trials], dtype=bool)
        """Those whose objective is no estimate of the search."""
        self.codes = [each.code for each in trials]
        self.programs = {
            int(point): each.program for point, each in zip(self.points, trials, strict=True) if each.program
        }
        """The hash of the program of each point for which one was built."""

    def __len__(self) -> int:
        return len(self.points)


def _index(space: Space, trial: JudgedTrial) -> int:
    index = space.index_of(trial.point)
    if index is None:
        raise StoreError(f"trial {trial.number} is of a point that the study's space does not have: restore a copy")
    return index
