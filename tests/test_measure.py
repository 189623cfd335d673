"""Blocks and their statistics, on arms whose truth is known, and the A/A test on a real stopwatch."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from autotuner.measure.blocks import Blocks, run_blocks
from autotuner.measure.statistics import median_interval, order_rank
from autotuner.measure.thermometer import ATTEMPTS, undisturbed
from autotuner.outcome import Interval
from autotuner.verdict import Fault, Verdict


def noisy(us: float, noise: float, draw: random.Random) -> Callable[[], float]:
    """An arm of known median with relative noise and, in two of a hundred samples, a spike."""

    def sample() -> float:
        spike = 1.0 + 0.5 * (draw.random() < 0.02)
        return us * 1e-6 * math.exp(draw.gauss(0.0, noise)) * spike

    return sample


@pytest.mark.parametrize("count", [6, 12, 13, 20, 40, 60])
def test_the_rank_is_the_largest_that_covers(count: int) -> None:
    def coverage(rank: int) -> float:
        return 1.0 - 2.0 * sum(math.comb(count, below) for below in range(rank)) / 2.0**count

    rank = order_rank(count)
    assert coverage(rank) >= 0.95
    assert rank + 1 > count // 2 or coverage(rank + 1) < 0.95


def test_too_few_values_have_an_unbounded_interval() -> None:
    interval = median_interval([1.0, 2.0, 3.0, 4.0, 5.0])
    assert (interval.low, interval.median, interval.high) == (-math.inf, 3.0, math.inf)


def test_the_interval_covers_the_median_of_a_skewed_distribution() -> None:
    draw = random.Random(1)
    truth = math.log(2)
    hits = 0
    for _ in range(2000):
        interval = median_interval([draw.expovariate(1.0) for _ in range(15)])
        hits += interval.low <= truth <= interval.high
    assert hits / 2000 >= 0.94


def test_a_precise_pair_stops_at_the_fewest_blocks() -> None:
    draw = random.Random(2)
    blocks = run_blocks(noisy(90, 0.0005, draw), noisy(100, 0.0005, draw), 1, 12, 60)
    assert len(blocks.variant) == 12
    assert blocks.log_ratio.median == pytest.approx(math.log(0.9), abs=0.002)
    assert not blocks.censored


def test_a_noisy_pair_goes_on_to_the_most_blocks() -> None:
    draw = random.Random(3)
    assert len(run_blocks(noisy(90, 0.2, draw), noisy(100, 0.2, draw), 1, 12, 60).variant) == 60


def test_what_is_clearly_slower_than_the_best_is_censored_after_two_blocks() -> None:
    draw = random.Random(4)
    best = math.log(0.5)
    blocks = run_blocks(noisy(90, 0.01, draw), noisy(100, 0.01, draw), 1, 12, 60, best)
    assert blocks.censored
    assert len(blocks.variant) == 2
    assert not run_blocks(noisy(60, 0.01, draw), noisy(100, 0.01, draw), 1, 12, 60, best).censored


def test_slower_than_the_best_ends_at_the_fewest_blocks() -> None:
    draw = random.Random(5)
    blocks = run_blocks(noisy(60, 0.03, draw), noisy(100, 0.03, draw), 1, 12, 60, math.log(0.5))
    assert len(blocks.variant) == 12


def test_without_a_best_nothing_is_given_up() -> None:
    draw = random.Random(6)
    blocks = run_blocks(noisy(500, 0.001, draw), noisy(100, 0.001, draw), 1, 12, 60)
    assert not blocks.censored
    assert len(blocks.variant) == 12


def test_both_arms_run_first_about_equally_often() -> None:
    order: list[str] = []

    def arm(name: str) -> Callable[[], float]:
        def sample() -> float:
            order.append(name)
            return 1e-4 * (1 + 0.1 * random.Random(len(order)).random())

        return sample

    run_blocks(arm("variant"), arm("baseline"), 7, 60, 60)
    firsts = order[::2]
    assert 15 < firsts.count("variant") < 45


def test_drift_shared_by_both_arms_leaves_the_ratio_alone() -> None:
    """A machine that slows down 2.7 times during the blocks moves both arms of a block alike."""
    clock = [0]

    def arm(us: float) -> Callable[[], float]:
        def sample() -> float:
            clock[0] += 1
            return us * 1e-6 * (1 + 1.7 * clock[0] / 40)

        return sample

    blocks = run_blocks(arm(80), arm(100), 8, 20, 20)
    assert blocks.log_ratio.median == pytest.approx(math.log(0.8), abs=0.05)


def test_equal_arms_name_no_winner() -> None:
    """A/A: the interval of two arms of one truth covers 0 in nearly every race."""
    draw = random.Random(9)
    wrong = 0
    for race in range(200):
        blocks = run_blocks(noisy(100, 0.01, draw), noisy(100, 0.01, draw), race, 12, 40)
        wrong += blocks.log_ratio.high < -0.005 or blocks.log_ratio.low > 0.005
    assert wrong <= 4


# The thermometer ----------------------------------------------------------------------------------------------------


class Takes:
    """Measurements beside which the baseline took so long, one after the other; the last one goes on."""

    def __init__(self, *baseline_us: float) -> None:
        self.taken: list[Blocks] = []
        self._left = list(baseline_us)

    def __call__(self) -> Blocks:
        us = self._left.pop(0) if len(self._left) > 1 else self._left[0]
        baseline = (0.5e-6 * us, 1e-6 * us, 9e-6 * us)  # the median counts
        blocks = Blocks((1e-6,) * 3, baseline, Interval(low=-1, median=0, high=1), censored=False)
        self.taken.append(blocks)
        return blocks


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that the thermometer makes, which are not waited for."""
    made: list[float] = []
    monkeypatch.setattr("autotuner.measure.thermometer.time", SimpleNamespace(sleep=made.append))
    return made


@pytest.mark.parametrize("us", [91, 100, 109])
def test_a_calm_measurement_is_taken_once(pauses: list[float], us: float) -> None:
    takes = Takes(us)
    assert undisturbed(takes, calm_us=100, drift=0.1) is takes.taken[0]
    assert len(takes.taken) == 1
    assert sum(pauses) == 0


@pytest.mark.parametrize("us", [80, 120])
def test_a_disturbed_measurement_is_taken_again_after_a_pause(pauses: list[float], us: float) -> None:
    takes = Takes(us, 105)
    assert undisturbed(takes, calm_us=100, drift=0.1) is takes.taken[1]
    assert len(takes.taken) == 2
    assert sum(pauses) > 0


@pytest.mark.usefixtures("pauses")
def test_a_machine_that_stays_disturbed_is_a_fault_of_ours() -> None:
    takes = Takes(150)
    fault = undisturbed(takes, calm_us=100, drift=0.1)
    assert isinstance(fault, Fault)
    assert (fault.verdict, fault.code) == (Verdict.INFRA_ERROR, "measure.drift")
    assert "150.0 us beside the variant, 100.0 us at calibration" in fault.detail
    assert len(takes.taken) == ATTEMPTS


@pytest.mark.usefixtures("pauses")
def test_without_a_calibration_nothing_is_compared() -> None:
    takes = Takes(1e6)
    assert undisturbed(takes, calm_us=None, drift=0.1) is takes.taken[0]
