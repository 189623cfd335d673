"""The store on a PostgreSQL server that is started for the tests; skipped where none is installed."""

from pathlib import Path

import pytest

from autotuner.store import Store, queries
from autotuner.tuning.finals import standings
from autotuner.tuning.run.driver import Budget
from autotuner.values.errors import StoreError
from tests.helpers import simulated
from tests.helpers.driven import WIDE, driver, trials_of
from tests.helpers.recorded import (
    CALIBRATION,
    deduplicated,
    heat,
    hold_finals,
    measured,
    raced_out,
    record_all,
    rejected,
    study_record,
)


def test_what_is_recorded_is_found(url: str) -> None:
    with Store.open(url) as store:
        store.ensure_study(study_record())
        with store.lease("scalar-abc") as held:
            number = store.start_session("scalar-abc", CALIBRATION, {})
            original = measured(16, 50.0, program="p")
            record_all(store, number, [original, deduplicated(32, original), rejected(64), raced_out(8, 300.0)])
            held.beat()
            with pytest.raises(StoreError, match="is being driven"), store.lease("scalar-abc"):
                pass
        assert standings.summary(store, "scalar-abc").best_number == 0
        assert store.revoke("scalar-abc", 0, "wrong") == (0, 1)
        assert [entry.number for entry in standings.leaderboard(store, "scalar-abc")] == [3]
        store.record_heat("scalar-abc", "aa", heat({16: 50.0}), session_id=number)
        hold_finals(store, {8: 300.0}, {8: 3})
        assert queries.aa_heats(store, "scalar-abc", number) == (heat({16: 50.0}),)
        best = standings.best(store, "scalar-abc")
        assert best.confirmed is not None
        assert best.entry.difference == pytest.approx(0.0, abs=0.01)


def test_a_sweep_judges_what_it_does_on_sqlite(url: str, tmp_path: Path) -> None:
    """Stopped once and gone on with; the driver writes Optuna's tables by statements of its own."""
    found = []
    for place in (url, str(tmp_path / "studies.db")):
        for until in (12, 30):
            with Store.open(place) as store:
                driver(store, simulated.backend(), width=WIDE).run(Budget(trials=until))
        with Store.open(place) as store:
            (study,) = standings.studies(store)
            trials = trials_of(store, study.name)
            outcomes = store.judged_numbers(study.name)
        found.append(
            [(each.number, each.params, each.state, each.value, outcomes[each.number].verdict) for each in trials]
        )
    assert len(found[0]) == 30
    assert found[0] == found[1]
