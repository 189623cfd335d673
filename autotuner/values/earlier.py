"""A variant as it was once, to race what is the best later against it."""

from datetime import datetime

from pydantic import Field

from autotuner.values.model import Model
from autotuner.values.problem import Problem
from autotuner.values.ratio import Speedup
from autotuner.values.variant import Variant


class Earlier(Model):
    """What an export, or a sweep of the night before, says of its variant."""

    trial: int
    exported_at: datetime
    device: str
    problems: tuple[Problem, ...]
    variant: Variant
    artifact: str
    library_sha256: str
    baselines: tuple[str, ...] = Field(description="one a problem")
    confirmed: tuple[Speedup | None, ...] = Field(
        description="one a problem: t_baseline / t_variant by finals of this binary; null: of another, or none"
    )
