"""Which member of a set has its turn."""

from __future__ import annotations

from autotuner.jobs.shares import FIRST, Share, first_trials, next_member


def share(judged: int, promise: float, weight: float = 1.0) -> Share:
    found = Share(weight)
    found.judged = judged
    found.promised(promise)
    return found


def test_each_member_has_some_trials_first() -> None:
    assert next_member([Share(), Share()], 100) == 0
    assert next_member([share(FIRST - 1, 0.0), Share()], 100) == 0
    assert next_member([share(FIRST, 0.9), Share()], 100) == 1


def test_once_all_have_begun_the_most_promising_goes_on() -> None:
    assert next_member([share(20, 0.01), share(20, 0.02)], 100) == 1
    assert next_member([share(20, 0.01, weight=3), share(20, 0.02)], 100) == 0
    exhausted = share(20, 0.9)
    exhausted.is_exhausted = True
    assert next_member([share(20, 0.01), exhausted], 100) == 0
    assert next_member([exhausted], 100) is None


def test_promises_are_averaged_and_points_that_were_enqueued_promise_nothing() -> None:
    found = share(20, 0.4)
    found.promised(None)
    found.promised(0.0)
    assert found.worth == 0.2


def test_a_small_budget_is_not_spent_on_first_trials() -> None:
    assert first_trials(8, 4) == 1
    assert first_trials(1000, 4) == FIRST
