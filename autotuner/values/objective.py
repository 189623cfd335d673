"""The objective: how the log-ratios of several problems become one number."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

Weight = Annotated[float, Field(gt=0, allow_inf_nan=False)]


def _listed(value: Any) -> Any:
    """A list of a document as a tuple."""
    return tuple(value) if isinstance(value, list) else value


Objective = Annotated[
    Literal["mean", "max"] | Annotated[tuple[Weight, ...], Field(min_length=1)], BeforeValidator(_listed)
]
"""The mean of the problems' log-ratios, their largest, or a mean in which each counts as its weight says: with count
times the baseline's time as weights, about ln of the time that all calls take together, over the baseline's."""


def combine(objective: Objective) -> Callable[[Sequence[float]], float]:
    """From one number a problem to one number."""
    if objective == "max":
        return max
    if objective == "mean":
        return fmean
    return lambda values: weighted(values, objective)


def weighted(values: Sequence[float], weights: Objective) -> float:
    """The mean of the values, each as often as its weight says; plain where there are no weights."""
    if isinstance(weights, str):
        return fmean(values)
    total = math.fsum(weights)
    return math.fsum(weight * value for weight, value in zip(weights, values, strict=True)) / total
