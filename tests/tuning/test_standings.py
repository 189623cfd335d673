"""What a study came to: the leaderboard, the best, finals, and what a revoked trial leaves behind."""

import math

import pytest

from autotuner.store import Store, queries
from autotuner.tuning.finals import standings
from autotuner.values.outcome import Measurement, Outcome, Stop
from autotuner.values.verdict import Verdict
from tests.helpers.recorded import (
    CALIBRATION,
    deduplicated,
    hold_finals,
    measured,
    measurement,
    raced,
    raced_out,
    record_all,
    study_record,
    with_error,
    with_resources,
)


@pytest.fixture
def store(store: Store) -> Store:
    """With one study."""
    store.ensure_study(study_record())
    return store


# Revoking -------------------------------------------------------------------------------------------------------


def test_a_revoked_trial_loses_its_latency_everywhere(store: Store, session: int) -> None:
    record_all(store, session, [measured(16, 50.0, program="p"), measured(32, 80.0)])
    assert store.revoke("scalar-abc", 0, "racecheck found a race") == (0,)
    assert [entry.number for entry in standings.leaderboard(store, "scalar-abc")] == [1]
    best = standings.best(store, "scalar-abc")
    assert best.entry.number == 1
    found = dict(store.outcomes("scalar-abc"))[0]
    assert (found.verdict, found.measurement) == (Verdict.INCORRECT, None)
    assert found.fault.detail == "racecheck found a race"
    assert math.isinf(found.objective)
    record = queries.trial(store, "scalar-abc", 0)
    assert record.revoked_reason == "racecheck found a race"
    assert record.revoked_at is not None
    assert record.outcome == measured(16, 50.0, program="p")
    assert standings.summary(store, "scalar-abc").revoked == 1


def test_revoking_takes_the_duplicates_along_and_keeps_the_first_reason(store: Store, session: int) -> None:
    original = measured(16, 50.0, program="p")
    record_all(store, session, [original, deduplicated(32, original), measured(64, 80.0)])
    assert store.revoke("scalar-abc", 1, "wrong") == (0, 1)
    assert store.revoke("scalar-abc", 0, "again") == ()
    assert queries.trial(store, "scalar-abc", 0).revoked_reason == "same program as trial 1: wrong"
    store.record("scalar-abc", session, 3, deduplicated(128, original))
    assert [entry.number for entry in standings.leaderboard(store, "scalar-abc")] == [2]


# Queries --------------------------------------------------------------------------------------------------------


def test_the_best_is_never_an_estimate(store: Store, session: int) -> None:
    record_all(store, session, [raced_out(8, 60.0)])
    assert standings.best(store, "scalar-abc") is None
    store.record("scalar-abc", session, 1, measured(16, 80.0))
    best = standings.best(store, "scalar-abc")
    assert (best.entry.number, best.outcome) == (1, measured(16, 80.0))
    assert best.record.session.calibration == CALIBRATION


# After finals ---------------------------------------------------------------------------------------------------


def recorded(store: Store, session: int) -> None:
    """Five trials: by the search 0 is the fastest, then 1, 2, 3; 4 was raced out."""
    outcomes = [measured(16, 48.0), measured(32, 49.0), measured(64, 50.0), measured(128, 51.0), raced_out(8, 90.0)]
    record_all(store, session, outcomes)


def test_finalists_come_first_and_ties_share_a_rank(store: Store, session: int) -> None:
    recorded(store, session)
    hold_finals(store, {16: 52.0, 32: 50.0, 64: 50.0, 8: 80.0}, {16: 0, 32: 1, 64: 2, 8: 4})
    entries = standings.leaderboard(store, "scalar-abc")
    assert {(e.rank, e.number) for e in entries[:2]} == {(1, 1), (1, 2)}
    assert [(e.rank, e.number) for e in entries[2:]] == [(3, 0), (4, 4), (5, 3)]
    assert [e.tied for e in entries] == [True, True, False, False, False]
    assert not any(e.crowned for e in entries)
    slow, raced, rest = entries[2:]
    assert slow.confirmed.mid == pytest.approx(100 / 52, rel=0.005)
    assert slow.confirmed.low < slow.confirmed.mid < slow.confirmed.high
    assert slow.difference == pytest.approx(100 / 48 / slow.confirmed.mid - 1)
    assert slow.speedup.mid == pytest.approx(100 / 48)
    assert raced.censored
    assert raced.confirmed is not None
    assert (rest.confirmed, rest.difference) == (None, None)
    assert standings.leaderboard(store, "scalar-abc", limit=3) == entries[:3]


def test_a_clear_winner_is_crowned(store: Store, session: int) -> None:
    recorded(store, session)
    finals = hold_finals(store, {16: 52.0, 32: 45.0, 64: 50.0}, {16: 0, 32: 1, 64: 2})
    entries = standings.leaderboard(store, "scalar-abc")
    assert [(e.rank, e.number, e.tied, e.crowned) for e in entries[:2]] == [(1, 1, False, True), (2, 2, False, False)]
    best = standings.best(store, "scalar-abc")
    assert (best.entry, best.tied, best.entry.crowned) == (entries[0], (1,), True)
    assert (best.finals.id, best.finals.leader, best.finals.judged_since) == (finals, 1, 0)
    assert best.finals.speedup == best.confirmed
    store.record("scalar-abc", session, 9, measured(256, 30.0))
    summary = standings.summary(store, "scalar-abc")
    assert summary.best_number == 1
    assert (summary.best_speedup, summary.best_confirmed) == (best.confirmed.mid, True)
    assert summary.finals == best.finals.model_copy(update={"judged_since": 1})


TIED = {16: 50.0, 32: 50.0}


@pytest.mark.parametrize(
    ("first", "second", "preferred"),
    [
        (with_error(measured(16, 48.0), 0.31), with_error(measured(32, 49.0), 0.14), 1),
        (with_error(measured(16, 48.0), 0.14), with_error(measured(32, 49.0), 0.11), 0),
        (with_resources(measured(16, 48.0), registers=128), with_resources(measured(32, 49.0), registers=96), 1),
        (
            with_resources(measured(16, 48.0), registers=96, shared_bytes=4096),
            with_resources(measured(32, 49.0), registers=96, shared_bytes=1024),
            1,
        ),
        (with_resources(measured(16, 48.0), stack_bytes=512), with_resources(measured(32, 49.0), stack_bytes=64), 1),
        (measured(16, 49.0), measured(32, 48.0), 0),
    ],
)
def test_of_ties_the_more_accurate_then_the_smaller_is_best(
    store: Store, session: int, first: Outcome, second: Outcome, preferred: int
) -> None:
    record_all(store, session, [first, second])
    hold_finals(store, TIED, {16: 0, 32: 1})
    best = standings.best(store, "scalar-abc")
    assert (best.entry.number, best.tied, best.entry.crowned) == (preferred, (0, 1), False)


# What is known beside the finals -----------------------------------------------------------------------------------


def test_what_was_confirmed_or_revoked_stands_in_the_place_of_the_estimate(store: Store, session: int) -> None:
    recorded(store, session)
    assert standings.corrections(store, "scalar-abc") == {}
    hold_finals(store, {16: 52.0, 32: 50.0}, {16: 0, 32: 1})
    store.revoke("scalar-abc", 2, "it was wrong")
    found = standings.corrections(store, "scalar-abc")
    assert found == pytest.approx({0: math.log(0.52), 1: math.log(0.5), 2: math.inf}, abs=0.005)
    assert standings.every_confirmed(store, "scalar-abc").get(3) is None
    one = standings.every_confirmed(store, "scalar-abc").get(1)
    assert math.log(one.mid) == pytest.approx(-found[1])


def test_a_revoked_finalist_leaves_the_standing(store: Store, session: int) -> None:
    recorded(store, session)
    hold_finals(store, {16: 45.0, 32: 50.0, 64: 50.0}, {16: 0, 32: 1, 64: 2})
    store.revoke("scalar-abc", 0, "a race was found")
    found = standings.finals(store, "scalar-abc")
    assert found.revoked == (0,)
    assert [each.tied for each in found.standing.finalists] == [True, True]
    entries = standings.leaderboard(store, "scalar-abc")
    assert sorted((e.rank, e.number) for e in entries) == [(1, 1), (1, 2), (3, 3), (4, 4)]
    best = standings.best(store, "scalar-abc")
    assert (best.entry.number, best.tied) == (1, (1, 2))


def long(found: Measurement) -> Measurement:
    """The race with three times as many blocks."""
    sides = ("variant_us", "baseline_us", "incumbent_us")
    timings = [each.model_copy(update={side: 3 * getattr(each, side) for side in sides}) for each in found.timings]
    return found.model_copy(update={"timings": tuple(timings)})


def test_an_estimate_is_as_wide_as_the_processes_in_which_it_raced_are_apart(store: Store, session: int) -> None:
    """Of the best of the search, which was in no finals: each later race had it as the incumbent, in a process of its
    own."""
    record_all(store, session, [measured(16, 50.0)])
    alone = standings.leaderboard(store, "scalar-abc")[0].speedup
    for number, us in enumerate((53.0, 47.0, 54.0, 46.0, 50.0), start=1):
        slower = measured(16 + number, 80.0)
        against = long(raced(measurement(80.0), 16, math.log(80.0 / us), Stop.SLOWER))
        store.record("scalar-abc", session, number, slower.model_copy(update={"measurement": against}))
    (first, second, *_) = standings.leaderboard(store, "scalar-abc")
    assert first.number == 0
    assert first.speedup.mid == alone.mid
    assert first.speedup.low < 0.96 * alone.mid < alone.low
    assert first.speedup.high > 1.04 * alone.mid > alone.high
    best = standings.best(store, "scalar-abc")
    assert best.entry.speedup == first.speedup
    assert second.speedup.high < 1.04 * second.speedup.mid  # nobody raced against it
