"""The one ratio: how long a variant takes over what it races against.

Races, objectives and tests are about ln(t_variant / t_baseline), `LogRatio`; over several problems the objective makes
one number of it. People read t_baseline / t_variant, `Speedup`. No other module goes from one to the other. Which
statistics make an interval is said in race/statistics.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from autotuner.values.model import Model

Log = Annotated[float, Field(ge=-99, le=99)]  # another one, of a process that lies, has no exponential, or no order

# One ratio and its interval -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Unbounded:
    """An end of an interval that too few values bound is `value`, and null in a document."""

    value: float

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        number = handler(source)
        nullable = core_schema.nullable_schema(number)
        return core_schema.no_info_after_validator_function(
            lambda found: self.value if found is None else found,
            nullable,
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda end: None if end == self.value else end, return_schema=nullable, when_used="json"
            ),
        )


class Speedup(Model):
    """t_baseline / t_variant with its confidence interval, low <= mid <= high: higher is better."""

    low: Annotated[float, _Unbounded(0.0)]
    mid: float
    high: Annotated[float, _Unbounded(math.inf)]
    level: float = Field(default=0.95, description="probability that the interval covers it")

    def __str__(self) -> str:
        return f"{self.mid:.3f}x ({self.low:.3f} to {self.high:.3f})"

    @property
    def bounded(self) -> bool:
        """Whether there were enough values for an interval."""
        return self.low > 0 and self.high < math.inf

    def is_apart(self, other: Speedup, tie: float) -> bool:
        """Whether the two intervals lie apart by more than a tie, which is relative."""
        return max(self.low / other.high, other.low / self.high) > 1 + tie


class LogRatio(Model):
    """ln(t_variant / t_baseline) with its confidence interval, low <= mid <= high: lower is faster."""

    low: Annotated[float, _Unbounded(-math.inf)]
    mid: Log
    high: Annotated[float, _Unbounded(math.inf)]
    level: float = Field(default=0.95, description="probability that the interval covers it")

    @property
    def speedup(self) -> Speedup:
        """t_baseline / t_variant: the ends change places."""
        return Speedup(low=speedup_of(self.high), mid=speedup_of(self.mid), high=speedup_of(self.low), level=self.level)

    def moved(self, by: float) -> LogRatio:
        """The same against something else, which takes exp(`by`) times as long as the baseline."""
        return LogRatio(low=self.low + by, mid=self.mid + by, high=self.high + by, level=self.level)


def speedup_of(log_ratio: float) -> float:
    """t_baseline / t_variant from ln(t_variant / t_baseline)."""
    return math.exp(min(-log_ratio, 99))


# In words -------------------------------------------------------------------------------------------------------------

UNCONFIRMED: Final = "unconfirmed"
"""Stands beside every speedup that no finals have confirmed, wherever it is quoted."""
BIASED = (
    "Unconfirmed: an estimate of the search. The best of many looks better than it is until `autotuner finals`"
    " confirms it."
)


def quoted(speedup: float, confirmed: bool, over: str = "") -> str:
    """A variant's speedup `over` a baseline, as every text quotes it: `1.234x torch, unconfirmed`."""
    said = f"{speedup:.3f}x {over}" if over else f"{speedup:.3f}x"
    return said if confirmed else f"{said}, {UNCONFIRMED}"


# Over several problems ------------------------------------------------------------------------------------------------

Weight = Annotated[float, Field(gt=0, allow_inf_nan=False)]


Objective = Annotated[
    Literal["mean", "max"] | Annotated[tuple[Weight, ...], Field(min_length=1)],
    BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value),  # which a document has
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


def combined(ratios: Sequence[Sequence[float]], objective: Objective) -> list[float]:
    """One number a block, from `ratios[problem][block]`."""
    over = combine(objective)
    return [over(block) for block in zip(*ratios, strict=True)]


def weighted(values: Sequence[float], weights: Objective) -> float:
    """The mean of the values, each as often as its weight says; plain where there are no weights."""
    if isinstance(weights, str):
        return fmean(values)
    total = math.fsum(weights)
    return math.fsum(weight * value for weight, value in zip(weights, values, strict=True)) / total
