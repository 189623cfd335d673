"""Profiles: what hardware counters say of a variant beside a baseline. They explain a latency, and are none."""

from typing import Literal

from pydantic import AwareDatetime, Field

from autotuner.values.model import Model
from autotuner.values.outcome import Artifact, Ceilings, Device
from autotuner.values.problem import Problem
from autotuner.values.variant import Value


class Side(Model):
    """What is to be counted: a forward of a variant, or of a baseline where there is no artifact."""

    problem: Problem
    artifact: Artifact | None
    baseline: str
    threads: int
    cache: Literal["cold", "warm"]


class Counted(Model):
    """The counters of one forward."""

    tool: str = Field(description="what counted, with its version")
    kernel: str = Field(default="", description="the longest kernel of the forward, which was counted; empty on a CPU")
    kernels: int = Field(default=0, description="of the forward")
    counters: dict[str, float] = Field(description="as the tool calls them")


class Profile(Model):
    """A variant beside a baseline."""

    problem: Problem
    parameters: dict[str, Value] = Field(description="of the variant, its implementation too")
    device: Device = Field(description="where it was counted, with the driver's and torch's versions")
    baseline: str
    cache: Literal["cold", "warm"]
    variant: Counted
    beside: Counted = Field(description="the baseline's")
    us: tuple[float, float | None] = Field(
        description="of variant and baseline in the search's race, without a profiler; null: another baseline raced"
    )
    ceilings: Ceilings | None = Field(description="of the device, by the session that judged the variant")
    acts: tuple[str, ...] = Field(default=(), description="parameters that matter most, by the study's beliefs then")
    counted_at: AwareDatetime
    host: str
