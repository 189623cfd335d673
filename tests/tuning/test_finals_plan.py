"""Who deserves the finals, what the search knows of pairs, and whom there is time for."""

from __future__ import annotations

import pytest

from autotuner.tuning.finals.plan import (
    LEAST,
    FinalistCosts,
    as_many_as_fit,
    by_merit,
    contenders,
    searched,
    slower_than,
)
from autotuner.values.outcome import Outcome, Stop
from tests.helpers.recorded import measured, measurement, raced, raced_out


def beaten(tile: int, us: float, by: int) -> Outcome:
    """Raced out against the artifact of a tile."""
    return raced_out(tile, us).model_copy(update={"measurement": raced(measurement(us), by, 0.3, Stop.SLOWER)})


def promoted(tile: int, us: float, over: int) -> Outcome:
    return measured(tile, us).model_copy(update={"measurement": raced(measurement(us), over, -0.1, Stop.PROMOTED)})


def test_what_lost_a_race_is_slower_and_so_is_what_that_beat() -> None:
    outcomes = {0: measured(16, 50.0), 1: promoted(32, 40.0, over=16), 2: beaten(64, 60.0, by=16), 3: measured(8, 41.0)}
    assert slower_than(searched(outcomes.items())) == {0: {1}, 1: set(), 2: {0, 1}, 3: set()}


def test_what_beat_a_contender_is_one_and_comes_before_it() -> None:
    """A disturbed race made the slow one look best; what beat it is far down the list."""
    many = {number: measured(1000 + number, 30.0 + number) for number in range(2, 20)}
    outcomes = {0: measured(16, 90.0), 1: beaten(32, 20.0, by=16), **many}
    right = searched(outcomes.items())
    found = contenders(right, "no default")
    assert {0, 1} <= set(found)
    assert by_merit(found, right)[-1] == 1


@pytest.mark.parametrize(("seconds", "count"), [(1e9, 9), (0.0, LEAST)])
def test_there_is_always_time_for_two(seconds: float, count: int) -> None:
    costs = dict.fromkeys(range(9), FinalistCosts(heat=2.0, judging=5.0))
    assert as_many_as_fit(range(9), costs, seconds) == tuple(range(count))
