"""What can be asked of a store, and what a revoked trial leaves behind."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from autotuner.errors import StoreError
from autotuner.outcome import Measurement
from autotuner.store import Store, queries
from autotuner.verdict import Verdict
from tests.recorded import (
    CALIBRATION,
    deduplicated,
    measured,
    measurement,
    raced_out,
    record_all,
    rejected,
    study_record,
    variant,
)

# Revoking -------------------------------------------------------------------------------------------------------


def test_a_revoked_trial_loses_its_latency_everywhere(store: Store, session: int) -> None:
    record_all(store, session, [measured(16, 50.0, program="p"), measured(32, 80.0)])
    assert store.revoke("scalar-abc", 0, "racecheck found a race") == (0,)
    assert [entry.number for entry in queries.leaderboard(store, "scalar-abc")] == [1]
    best = queries.best(store, "scalar-abc")
    assert best is not None
    assert best.entry.number == 1
    found = store.find("scalar-abc", variant(16).digest)
    assert found is not None
    assert (found.verdict, found.measurement) == (Verdict.INCORRECT, None)
    assert found.fault is not None
    assert found.fault.detail == "racecheck found a race"
    assert math.isinf(store.judged_numbers("scalar-abc")[0].objective)
    assert store.find_program("scalar-abc", "p") is None
    record = queries.trial(store, "scalar-abc", 0)
    assert record.revoked_reason == "racecheck found a race"
    assert record.revoked_at is not None
    assert record.outcome == measured(16, 50.0, program="p")
    assert queries.summary(store, "scalar-abc").revoked == 1


def test_revoking_takes_the_duplicates_along_and_keeps_the_first_reason(store: Store, session: int) -> None:
    original = measured(16, 50.0, program="p")
    record_all(store, session, [original, deduplicated(32, original), measured(64, 80.0)])
    assert store.revoke("scalar-abc", 1, "wrong") == (0, 1)
    assert store.revoke("scalar-abc", 0, "again") == ()
    assert queries.trial(store, "scalar-abc", 0).revoked_reason == "same program as trial 1: wrong"
    store.record("scalar-abc", session, 3, deduplicated(128, original))
    assert [entry.number for entry in queries.leaderboard(store, "scalar-abc")] == [2]


# Queries --------------------------------------------------------------------------------------------------------


def test_the_leaderboard_is_sorted_and_holds_only_what_passed(store: Store, session: int) -> None:
    outcomes = [measured(1, 80.0), rejected(2), measured(4, 50.0), raced_out(8, 200.0), measured(16, 80.0)]
    record_all(store, session, [*outcomes, rejected(32, Verdict.INFRA_ERROR)])
    entries = queries.leaderboard(store, "scalar-abc", limit=10)
    assert [(e.rank, e.number) for e in entries] == [(1, 2), (2, 0), (3, 4), (4, 3)]
    assert [e.censored for e in entries] == [False, False, False, True]
    top = entries[0]
    assert top.variant == variant(4)
    assert (top.median_us, top.baseline_us) == pytest.approx((50.0, 100.0))
    expected = (2 * math.exp(-0.02), 2.0, 2 * math.exp(0.02))
    assert (top.speedup.low, top.speedup.median, top.speedup.high) == pytest.approx(expected)
    assert len(queries.leaderboard(store, "scalar-abc", limit=2)) == 2


def test_several_problems_give_geometric_means(store: Store, session: int) -> None:
    timings = measurement(50.0).timings + measurement(200.0).timings
    both = Measurement(timings=timings, objective=0.0, cache="cold")
    store.record("scalar-abc", session, 0, measured(16, 1.0).model_copy(update={"measurement": both}))
    (entry,) = queries.leaderboard(store, "scalar-abc")
    assert (entry.median_us, entry.baseline_us, entry.speedup.median) == pytest.approx((100.0, 100.0, 1.0))


def test_the_best_is_never_an_estimate(store: Store, session: int) -> None:
    record_all(store, session, [raced_out(8, 60.0)])
    assert queries.best(store, "scalar-abc") is None
    store.record("scalar-abc", session, 1, measured(16, 80.0))
    best = queries.best(store, "scalar-abc")
    assert best is not None
    assert (best.entry.number, best.outcome) == (1, measured(16, 80.0))
    assert best.record.session.calibration == CALIBRATION


def test_a_summary_counts_and_spreads(store: Store, session: int) -> None:
    faults = [rejected(32), rejected(64), rejected(128, Verdict.CRASHED, "process.signal")]
    record_all(store, session, [measured(1, 50.0), measured(2, 80.0), measured(4, 100.0), raced_out(8, 300.0), *faults])
    found = queries.summary(store, "scalar-abc")
    assert found.by_verdict == {
        Verdict.MEASURED: 3,
        Verdict.RACED_OUT: 1,
        Verdict.INCORRECT: 2,
        Verdict.CRASHED: 1,
    }
    assert found.by_fault == {"G2.T1": 2, "process.signal": 1}
    assert (found.judged, found.rejected, found.best_number, found.running) == (7, 3, 0, False)
    assert found.best_speedup == pytest.approx(2.0)
    assert found.spread is not None
    assert (found.spread.best_us, found.spread.median_us, found.spread.worst_us) == pytest.approx((50.0, 90.0, 300.0))
    assert found.spread.worst_to_best == pytest.approx(6.0)


def test_an_empty_study_has_no_best(store: Store) -> None:
    found = queries.summary(store, "scalar-abc")
    assert (found.judged, found.best_number, found.best_speedup, found.spread) == (0, None, None, None)
    assert queries.leaderboard(store, "scalar-abc") == ()


def test_a_study_runs_while_its_driver_lives(store: Store) -> None:
    with store.lease():
        number = store.start_session("scalar-abc", CALIBRATION, {})
        assert queries.summary(store, "scalar-abc").running
        store.finish_session(number)
        assert not queries.summary(store, "scalar-abc").running


def test_studies_are_named_by_prefix_or_last_activity(store: Store) -> None:
    store.ensure_study(study_record("scalar-abd"))
    store.ensure_study(study_record("simd-xyz"))
    store.start_session("scalar-abd", CALIBRATION, {})
    assert queries.resolve_study(store) == "scalar-abd"
    assert queries.studies(store)[0].name == "scalar-abd"
    assert queries.resolve_study(store, "simd") == "simd-xyz"
    assert queries.resolve_study(store, "scalar-abc") == "scalar-abc"
    with pytest.raises(StoreError, match="scalar-abd, scalar-abc"):
        queries.resolve_study(store, "scalar")
    with pytest.raises(StoreError, match="near it: simd-xyz"):
        queries.resolve_study(store, "simd-xzy")


def test_a_store_without_studies_says_so(path: Path) -> None:
    with Store.open(str(path)) as store, pytest.raises(StoreError, match="no studies yet"):
        queries.resolve_study(store)
