"""Interleaved blocks: in each block every arm runs once, in random order; ratios are taken within a block."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from autotuner.measure.statistics import median_interval
from autotuner.outcome import Interval, Measurement, Timing
from autotuner.problem import Problem

Sample = Callable[[], float]
"""Runs an arm a few times and returns the seconds of one forward."""

HALF_WIDTH = 0.005
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
    may_give_up: bool = True,
) -> Blocks:
    """Times two arms against each other.

    Stops when the 95 % interval of the median of ln(t_variant / t_baseline) is at most +-0.5 % wide, or at
    `max_blocks`; from `min_blocks` on also when the whole interval is slower than `best`, the log-ratio to beat. With
    `may_give_up`, gives up after two blocks when both are 1.5 times slower than the faster of the baseline and `best`;
    the result is then `censored`.
    """
    hopeless_above = CLEARLY_SLOWER + min(0.0, best if best is not None else 0.0)
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
        hopeless = may_give_up and len(ratios) == 2 and min(ratios) > hopeless_above
        enough = len(ratios) >= min_blocks and (
            interval.high - interval.low <= 2 * HALF_WIDTH or (best is not None and interval.low > best)
        )
        if hopeless or enough or len(ratios) >= max_blocks:
            return Blocks(tuple(variant_s), tuple(baseline_s), interval, censored=hopeless)
