"""Statistics of log-ratios, and every interval there is: of a median without any distribution, of a mean by Student's,
of the mean of many by the normal one.

The quantiles of Student's distribution come from scipy.special, imported where they are used: it takes longer than all
else that a question about the store imports. scipy.stats has a trimmed mean and Yuen's test, too, and the tests compare
ours with these. But its import takes another 0.3 to 0.5 s in each process that judges, and its trim_mean of 30 values
140 us where `trimmed` takes 8 us; a race asks for several after each block. It does not have Holm's procedure.
"""

import math
from collections.abc import Iterable, Sequence
from functools import cache
from statistics import fmean, median
from typing import NamedTuple, Self

from autotuner.values.ratio import LogRatio

LEVEL = 0.95
"""The probability that an interval covers what it is of."""
SIGMAS = 1.96
"""Standard deviations to either side that an interval of 95 % spans, where the distribution is normal."""
TRIM = 0.2
"""The share of the values that a trimmed mean leaves out at either end, 0..1."""


@cache
def order_rank(count: int) -> int:
    """The largest j (from 1) such that [x_(j), x_(count+1-j)] covers the median with at least the probability LEVEL.

    0 when even the whole range does not. The number of samples below the median is binomial(count, 1/2), whatever the
    distribution (David and Nagaraja, Order Statistics, section 7.1).
    """
    tail, rank = 0.0, 0
    for below in range(count // 2):
        tail += math.comb(count, below) / 2.0**count
        if 2 * tail > 1 - LEVEL:
            break
        rank = below + 1
    return rank


def median_interval(values: Sequence[float]) -> LogRatio:
    """Median and its distribution-free 95 % interval; infinite bounds when there are too few values."""
    ordered = sorted(values)
    rank = order_rank(len(ordered))
    low, high = (ordered[rank - 1], ordered[-rank]) if rank else (-math.inf, math.inf)
    return LogRatio(low=low, mid=median(ordered), high=high)


def normal_interval(values: Sequence[float]) -> LogRatio:
    """The mean of many values and its 95 % interval by the normal distribution; of one value the value itself."""
    mean = fmean(values)
    width = SIGMAS * deviation(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return LogRatio(low=mean - width, mid=mean, high=mean + width)


def student_interval(mean: float, error: float, freedom: float) -> LogRatio:
    """A mean with its standard error's interval by Student's distribution; infinite bounds without freedom."""
    width = student((1 + LEVEL) / 2, freedom) * error if freedom else math.inf
    return LogRatio(low=mean - width, mid=mean, high=mean + width)


@cache
def student(probability: float, freedom: float) -> float:
    """The quantile of Student's distribution."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, probability))


def deviation(values: Sequence[float]) -> float:
    """The sample's standard deviation; NaN for fewer than two values.

    As good as statistics.stdev for log-ratios, whose exact fractions would cost a race more than its samples.
    """
    if len(values) < 2:
        return math.nan
    mean = fmean(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


class Between(NamedTuple):
    """How far apart values of the same thing are."""

    freedom: int = 0
    """Degrees of freedom that are known of it."""
    deviation: float = math.inf

    @classmethod
    def of(cls, groups: Iterable[Sequence[float]]) -> Self:
        """What all groups have in common, each around a mean of its own."""
        several = [group for group in groups if len(group) > 1]
        freedom = sum(len(group) - 1 for group in several)
        squares = math.fsum((len(group) - 1) * deviation(group) ** 2 for group in several)
        return cls(freedom, math.sqrt(squares / freedom)) if freedom else cls()


UNKNOWN = Between()


def variance_ratio(one: Between, other: Between) -> float:
    """The probability that the ratio of both variances would be larger, were they of one kind (the F test)."""
    from scipy.special import fdtrc

    return float(fdtrc(one.freedom, other.freedom, (one.deviation / other.deviation) ** 2))


def trimmed(values: Sequence[float]) -> tuple[float, float, int]:
    """The mean without the TRIM smallest and largest, its standard error, and the degrees of freedom.

    A sample that something disturbed takes half as long again where differences of half a per cent matter: one such
    would decide a mean. The error is that of Yuen (Biometrika 61, 1974), from the winsorized sum of squares.
    """
    ordered = sorted(values)
    cut = int(TRIM * len(ordered))
    kept = ordered[cut : len(ordered) - cut]
    winsorized = [kept[0]] * cut + kept + [kept[-1]] * cut
    freedom = len(kept) - 1
    if freedom < 1:
        return fmean(kept), math.inf, 0
    mean = fmean(winsorized)
    squares = math.fsum((value - mean) ** 2 for value in winsorized)
    return fmean(kept), math.sqrt(squares / (len(kept) * freedom)), freedom


def trimmed_bound(values: Sequence[float], alpha: float) -> float:
    """The bound that the trimmed mean exceeds with confidence 1 - alpha; -inf for fewer than two values."""
    if len(values) < 2:
        return -math.inf
    mean, error, freedom = trimmed(values)
    return mean - student(1 - alpha, freedom) * error


def trimmed_interval(values: Sequence[float]) -> LogRatio:
    """Trimmed mean and its two-sided confidence interval."""
    return student_interval(*trimmed(values))


def p_positive(excess: float, error: float, freedom: float) -> float:
    """One-sided p-value of the t test: a quantity with this estimate and error is above 0; 1 without freedom."""
    if freedom < 1:
        return 1.0
    if error == 0:  # all values alike
        return 0.0 if excess > 0 else 1.0
    from scipy.special import stdtr

    return float(stdtr(freedom, -excess / error))


def holm(p_values: Sequence[float], alpha: float) -> list[bool]:
    """Which hypotheses are rejected when the error of the whole family is at most alpha.

    The smallest p-value is held against alpha / m, the next against alpha / (m - 1) and so on, up to the first that is
    above (Holm, Scandinavian Journal of Statistics 6, 1979).
    """
    rejected = [False] * len(p_values)
    ordered = sorted((p, place) for place, p in enumerate(p_values) if not math.isnan(p))
    for rank, (p, place) in enumerate(ordered):
        if p > alpha / (len(p_values) - rank):
            break
        rejected[place] = True
    return rejected
