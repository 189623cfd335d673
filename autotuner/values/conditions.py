"""Under what variants are judged: what a study fixes for all of them, and what a job is told beside that."""

import secrets
from typing import Literal

from pydantic import Field, PositiveInt

from autotuner.values.model import Model
from autotuner.values.outcome import Ceilings
from autotuner.values.problem import Problem
from autotuner.values.ratio import Objective

TIE = 0.005
"""Ratios within this of 1 are a tie at least; A/A races can only widen the band."""


class StudyProtocol(Model):
    """What a study fixes, so that all its variants are judged alike."""

    problems: tuple[Problem, ...] = Field(min_length=1)
    cache: Literal["cold", "warm"] = "cold"
    objective: Objective = Field(default="mean", description="of the problems' log-ratios")
    threads: PositiveInt = 1
    min_blocks: PositiveInt = 12
    max_blocks: PositiveInt = 60

    @property
    def compiled_for(self) -> Problem:
        """A problem that gives the compile-time part which all problems of a study share."""
        return self.problems[0]


class Conditions(StudyProtocol):
    """The study's protocol and what a job is told beside it: the secret seeds, the pinned baselines, and what was
    measured of the device before."""

    seeds: tuple[int, int, int, int] = Field(description="secret: inputs are drawn from these")
    baselines: tuple[str, ...] = Field(default=(), description="the pinned baseline, one a problem")
    baselines_us: tuple[float, ...] = Field(default=(), description="what they took at calibration; empty: not known")
    ceilings: Ceilings | None = Field(default=None, description="measured at calibration")
    seconds: float | None = Field(default=None, description="that the run has left when it begins; null: no limit")
    tie: float = Field(default=TIE, ge=0, description="relative; as wide as the run's A/A races say, or wider")


def fresh_seeds() -> tuple[int, int, int, int]:
    """Secret seeds for inputs that no variant has seen; a study keeps its own."""
    a, b, c, d = (secrets.randbits(48) for _ in range(4))
    return (a, b, c, d)
