"""Terms: what a study fixes for every variant it judges, so that all are judged alike."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveInt

from autotuner.model import Model
from autotuner.problem import Problem


class Terms(Model):
    """The problems, the secret seeds, the pinned baselines and the measuring protocol of a study."""

    problems: tuple[Problem, ...] = Field(min_length=1)
    cache: Literal["cold", "warm"] = "cold"
    threads: PositiveInt = 1
    seeds: tuple[int, int, int, int] = Field(description="secret: inputs are drawn from these")
    baselines: tuple[str, ...] = Field(default=(), description="the pinned SDPA backend, one a problem")
    baseline_us: tuple[float, ...] = Field(
        default=(), description="what the baselines took at calibration, microseconds: the session's thermometer"
    )
    min_blocks: PositiveInt = 12
    max_blocks: PositiveInt = 60

    @property
    def compiled_for(self) -> Problem:
        """A problem that gives the compile-time part (dtype, head_dim, causal), which all problems of a study share."""
        return self.problems[0]
