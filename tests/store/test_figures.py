"""Figures that the database makes, against the same worked out by hand from the outcomes."""

import pytest

from autotuner.store import Store, figures, queries
from tests.helpers.recorded import CALIBRATION, deduplicated, measured, raced_out, record_all, rejected, study_record


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, path: object) -> object:
    place = str(path) if request.param == "sqlite" else request.getfixturevalue("url")
    with Store.open(place) as opened:
        for name in ("scalar-abc", "scalar-abd"):
            opened.ensure_study(study_record(name))
        session = opened.start_session("scalar-abc", CALIBRATION, {})
        first = measured(16, 80.0, program="p")
        found = [first, rejected(64), raced_out(8, 300.0), measured(32, 50.0), deduplicated(128, first)]
        record_all(opened, session, found)
        opened.finish_session(session)
        other = opened.start_session("scalar-abd", CALIBRATION, {})
        for number, outcome in enumerate([measured(16, 40.0), measured(64, 70.0), rejected(8)]):
            opened.record("scalar-abd", other, number, outcome)
        yield opened


def test_history_has_each_trial_that_was_the_best_until_then(store: Store) -> None:
    found = figures.history(store, "scalar-abc")
    assert [(each.number, each.judged) for each in found] == [(0, 1), (3, 4)]
    assert [each.speedup for each in found] == pytest.approx([100 / 80, 100 / 50])
    assert found[0].seconds == pytest.approx(4.0)
    assert found[1].seconds == pytest.approx(12.0)
    store.revoke("scalar-abc", 0, "wrong")
    assert [each.number for each in figures.history(store, "scalar-abc")] == [3]


def test_what_was_raced_out_is_never_the_best(store: Store) -> None:
    """Its few blocks looked faster than anything before or after; a duplicate of it shares them."""
    session = store.start_session("scalar-abd", CALIBRATION, {})
    lost = raced_out(128, 10.0)
    duplicate = deduplicated(256, lost)
    for number, outcome in enumerate([lost, duplicate, measured(32, 30.0)], start=3):
        store.record("scalar-abd", session, number, outcome)
    assert [each.number for each in figures.history(store, "scalar-abd")] == [0, 5]
    assert queries.judged_count(store, "scalar-abd") == 6
