"""Distribution-free statistics of block ratios."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from autotuner.outcome import Interval


def order_rank(count: int, level: float = 0.95) -> int:
    """The largest j (from 1) such that [x_(j), x_(count+1-j)] covers the median with at least this probability.

    0 when even the whole range does not. The number of samples below the median is binomial(count, 1/2), whatever the
    distribution (David and Nagaraja, Order Statistics, section 7.1).
    """
    tail, rank = 0.0, 0
    for below in range(count // 2):
        tail += math.comb(count, below) / 2.0**count
        if 2 * tail > 1 - level:
            break
        rank = below + 1
    return rank


def median_interval(values: Sequence[float], level: float = 0.95) -> Interval:
    """Median and its distribution-free confidence interval; infinite bounds when there are too few values."""
    ordered = sorted(values)
    rank = order_rank(len(ordered), level)
    low, high = (ordered[rank - 1], ordered[-rank]) if rank else (-math.inf, math.inf)
    return Interval(low=low, median=median(ordered), high=high, level=level)
