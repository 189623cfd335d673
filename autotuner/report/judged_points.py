"""The judged trials of a study as points of its space."""

from __future__ import annotations

import numpy as np

from autotuner.spaces.space import Space
from autotuner.values.outcome import Outcome


class JudgedPoints:
    """What the surrogate and the tables of rejects need of the trials, in the order of their ends."""

    def __init__(self, space: Space, outcomes: list[Outcome]) -> None:
        self.outcomes = outcomes
        self.points = np.array([space.index_of(each.variant.point) for each in outcomes], dtype=np.int64)
        self.objectives = np.array([each.objective for each in outcomes], dtype=np.float64)
        self.measured = np.isfinite(self.objectives)
        self.codes = [_code(each) for each in outcomes]


def _code(outcome: Outcome) -> str | None:
    """Why it was rejected; None when it was not."""
    if outcome.verdict.has_latency:
        return None
    return outcome.fault.code if outcome.fault is not None else outcome.verdict.value
