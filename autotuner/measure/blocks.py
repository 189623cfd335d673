"""Interleaved blocks: in each block every arm runs once, in random order; ratios are taken within a block."""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from autotuner.measure.statistics import median_interval
from autotuner.outcome import Interval, Measurement, Timing
from autotuner.problem import Problem

Sample = Callable[[], float]
"""Runs an arm a few times and returns the seconds of one forward."""

HALF_WIDTH = 0.005
LONGEST_S = 30.0
CLEARLY_SLOWER = math.log(1.5)


class Blocks(NamedTuple):
    """Raw seconds a block of both arms, and what follows from them."""

    variant: tuple[float, ...]
    baseline: tuple[float, ...]
    log_ratio: Interval
    censored: bool

    def timing(self, problem: Problem, baseline: str, calls: tuple[int, int]) -> Timing:
        """These blocks as the record of one problem; `calls` forwards a sample: (variant, baseline)."""
        return Timing(
            problem=problem,
            baseline=baseline,
            variant_us=tuple(1e6 * seconds for seconds in self.variant),
            baseline_us=tuple(1e6 * seconds for seconds in self.baseline),
            log_ratio=self.log_ratio,
            calls=calls,
        )


def measurement(timings: Sequence[Timing], cache: Literal["cold", "warm"], censored: bool) -> Measurement:
    """The measurement over all problems: its objective is the mean of the median log-ratios."""
    objective = statistics.fmean(timing.log_ratio.median for timing in timings)
    return Measurement(timings=tuple(timings), objective=objective, cache=cache, censored=censored)


def run_blocks(
    variant: Sample,
    baseline: Sample,
    seed: int,
    min_blocks: int,
    max_blocks: int,
    best: float | None = None,
) -> Blocks:
    """Times two arms against each other.

    Stops when the 95 % interval of the median of ln(t_variant / t_baseline) is at most +-0.5 % wide, or at
    `max_blocks`, or after LONGEST_S. With `best`, the log-ratio to beat, it also stops when the variant cannot be the
    best: after two blocks both 1.5 times slower than that (then `censored`), or from `min_blocks` on when the whole
    interval is slower. Without one nothing is given up: the first right variant of a study gets its full measurement.
    """
    started = time.monotonic()
    order = random.Random(seed)
    variant_s: list[float] = []
    baseline_s: list[float] = []
    arms = [(variant, variant_s), (baseline, baseline_s)]
    while True:
        order.shuffle(arms)
        for sample, samples in arms:
            samples.append(sample())
        ratios = [math.log(v / b) for v, b in zip(variant_s, baseline_s, strict=True)]
        interval = median_interval(ratios)
        hopeless = best is not None and len(ratios) == 2 and min(ratios) > best + CLEARLY_SLOWER
        enough = len(ratios) >= min_blocks and (
            interval.high - interval.low <= 2 * HALF_WIDTH or (best is not None and interval.low > best)
        )
        late = time.monotonic() - started > LONGEST_S and len(ratios) > 2
        if hopeless or enough or late or len(ratios) >= max_blocks:
            return Blocks(tuple(variant_s), tuple(baseline_s), interval, censored=hopeless)
