"""Our statistics against those of scipy.stats, which is too slow to import where they are needed."""

import math
import random

import numpy as np
import pytest
from scipy import stats

from autotuner.race.statistics import TRIM, deviation, p_positive, student, trimmed, trimmed_interval
from autotuner.views.surrogate_beliefs import _rank_correlation

COUNTS = [2, 3, 5, 6, 10, 17, 30, 60]


def drawn(count: int, seed: int = 0) -> list[float]:
    draw = random.Random(f"{count} {seed}")
    return [draw.gauss(0.01, 0.005) * (1.5 if draw.random() < 0.1 else 1.0) for _ in range(count)]


@pytest.mark.parametrize("count", COUNTS)
def test_the_trimmed_mean_is_scipys(count: int) -> None:
    values = drawn(count)
    assert trimmed(values)[0] == pytest.approx(float(stats.trim_mean(values, TRIM)), abs=1e-12)


@pytest.mark.parametrize("count", [10, 17, 30, 60])
def test_its_error_is_that_of_scipys_yuen_test(count: int) -> None:
    """Which compares two samples: of these the errors add up as squares."""
    one, other = drawn(count, 1), drawn(count, 2)
    (first, error, _), (second, another, _) = trimmed(one), trimmed(other)
    theirs = stats.ttest_ind(one, other, equal_var=False, trim=TRIM)
    assert (first - second) / math.hypot(error, another) == pytest.approx(float(theirs.statistic), rel=1e-12)


@pytest.mark.parametrize("count", [10, 30])
def test_the_interval_is_students_around_it(count: int) -> None:
    values = drawn(count)
    mean, error, freedom = trimmed(values)
    low, high = stats.t.interval(0.95, freedom, loc=mean, scale=error)
    found = trimmed_interval(values, 0.95)
    assert found.low == pytest.approx(float(low), abs=1e-12)
    assert found.high == pytest.approx(float(high), abs=1e-12)
    assert student(0.975, freedom) == pytest.approx(float(stats.t.ppf(0.975, freedom)), rel=1e-12)


@pytest.mark.parametrize("count", COUNTS)
def test_deviation_and_p_value_are_scipys(count: int) -> None:
    values = drawn(count)
    assert deviation(values) == pytest.approx(float(stats.tstd(values)), rel=1e-12)
    theirs = stats.ttest_1samp(values, 0.008, alternative="greater")
    excess, error = float(np.mean(values)) - 0.008, deviation(values) / math.sqrt(count)
    assert p_positive(excess, error, count - 1) == pytest.approx(float(theirs.pvalue), abs=1e-12)


def by_ranks(one: np.ndarray, other: np.ndarray) -> float:
    """Spearman's by its definition: the correlation of the ranks."""
    ranks = [stats.rankdata(each) - (len(each) + 1) / 2 for each in (one, other)]
    return float(ranks[0] @ ranks[1]) / math.sqrt(float(ranks[0] @ ranks[0]) * float(ranks[1] @ ranks[1]))


@pytest.mark.parametrize("count", [5, 40])
def test_the_rank_correlation_is_that_of_the_ranks(count: int) -> None:
    draw = np.random.default_rng(count)
    one = draw.integers(4, size=count).astype(float)  # with ties
    other = one + draw.normal(size=count)
    assert _rank_correlation(one, other) == pytest.approx(by_ranks(one, other), abs=1e-12)
    assert _rank_correlation(one, np.ones(count)) is None
