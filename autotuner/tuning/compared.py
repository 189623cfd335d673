"""Two studies, of two devices, say, or of two versions of a compiler, by the variants that both have judged."""

import math
from statistics import fmean

from pydantic import Field

from autotuner.race.statistics import normal_interval
from autotuner.store import Store, figures
from autotuner.values.model import Model
from autotuner.values.ratio import Speedup


class StudyComparison(Model):
    """What two studies say of the variants of both."""

    shared: int = Field(description="variants with a latency in both")
    faster: int = Field(description="of them those with a larger speedup in the second")
    speedup: Speedup | None = Field(
        description="geometric mean of speedup in the second over speedup in the first; null where they share none"
    )
    variant_ratio: float | None = Field(description="geometric mean of microseconds in the second over the first")
    only_right_in_first: int = Field(description="rejected in the second")
    only_right_in_second: int = Field(description="rejected in the first")


def comparison(store: Store, first: str, second: str) -> StudyComparison:
    """Compares the second study with the first. Raises StoreError."""
    pairs = figures.in_both(store, first, second)
    right = [(one, other) for one, other in pairs if one is not None and other is not None]
    gains = [other[0] - one[0] for one, other in right]
    return StudyComparison(
        shared=len(right),
        faster=sum(gain < 0 for gain in gains),
        speedup=normal_interval(gains).speedup if gains else None,
        variant_ratio=math.exp(fmean(math.log(other[1] / one[1]) for one, other in right)) if right else None,
        only_right_in_first=sum(one is not None and other is None for one, other in pairs),
        only_right_in_second=sum(one is None and other is not None for one, other in pairs),
    )
