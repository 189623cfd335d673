"""What can be asked of a store."""

import csv
import io
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from autotuner.store import Store, figures, queries
from autotuner.tuning.finals import standings
from autotuner.values.errors import StoreError
from autotuner.values.variant import Variant
from autotuner.views.trials_table import as_csv, columns, trials_of
from tests.helpers.recorded import CALIBRATION, deduplicated, measured, raced_out, record_all, rejected, study_record


def test_studies_are_named_by_prefix_or_last_activity(store: Store) -> None:
    store.ensure_study(study_record("scalar-abd"))
    store.ensure_study(study_record("simd-xyz"))
    store.start_session("scalar-abd", CALIBRATION, {})
    assert queries.resolve_study(store) == "scalar-abd"
    assert standings.studies(store)[0].name == "scalar-abd"
    assert queries.resolve_study(store, "simd") == "simd-xyz"
    assert queries.resolve_study(store, "scalar-abc") == "scalar-abc"
    with pytest.raises(StoreError, match="scalar-abd, scalar-abc"):
        queries.resolve_study(store, "scalar")
    with pytest.raises(StoreError, match="near it: simd-xyz"):
        queries.resolve_study(store, "simd-xzy")


def test_a_study_of_an_op_that_is_not_here_is_left_alone(store: Store, path: Path) -> None:
    """The package of an op may be removed; the studies of others go on."""
    store.ensure_study(study_record("of-another"))
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(
            """UPDATE at_study SET problems = replace(problems, '"sdpa"', '"gone"') WHERE name = 'of-another'"""
        )
    assert [each.name for each in queries.records(store)] == ["scalar-abc"]
    assert [each.name for each in standings.studies(store)] == ["scalar-abc"]
    with pytest.raises(StoreError, match="of-another is of the op 'gone', which is not here; install its package"):
        queries.study(store, "of-another")


# Figures that the database makes --------------------------------------------------------------------------------------


@pytest.fixture
def two(opened: Store) -> Store:
    """A store with two studies, on each kind of database."""
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
    return opened


def test_history_has_each_trial_that_was_the_best_until_then(two: Store) -> None:
    found = figures.history(two, "scalar-abc")
    assert [(each.number, each.judged) for each in found] == [(0, 1), (3, 4)]
    assert [each.speedup for each in found] == pytest.approx([100 / 80, 100 / 50])
    assert found[0].seconds == pytest.approx(4.0)
    assert found[1].seconds == pytest.approx(12.0)
    two.revoke("scalar-abc", 0, "wrong")
    assert [each.number for each in figures.history(two, "scalar-abc")] == [3]


def test_what_was_raced_out_is_never_the_best(two: Store) -> None:
    """Its few blocks looked faster than anything before or after; a duplicate of it shares them."""
    session = two.start_session("scalar-abd", CALIBRATION, {})
    lost = raced_out(128, 10.0)
    duplicate = deduplicated(256, lost)
    for number, outcome in enumerate([lost, duplicate, measured(32, 30.0)], start=3):
        two.record("scalar-abd", session, number, outcome)
    assert [each.number for each in figures.history(two, "scalar-abd")] == [0, 5]
    assert queries.judged_count(two, "scalar-abd") == 6


# Every trial as a list ------------------------------------------------------------------------------------------------


WORDS = Variant(family="sdpa", backend="cpu", impl="scalar", parameters={"MODE": "a", "BIG": 2**63 - 1, "LESS": -1})


@pytest.fixture
def either(opened: Store) -> Store:
    """A store with one study, on each kind of database."""
    opened.ensure_study(study_record())
    return opened


def test_a_trial_is_listed_with_its_parameters_and_what_came_of_it(either: Store) -> None:
    store, session = either, either.start_session("scalar-abc", CALIBRATION, {})
    odd = measured(32, 50.0).model_copy(update={"variant": WORDS})
    record_all(store, session, [measured(16, 80.0), rejected(64), raced_out(8, 90.0), odd])
    good, wrong, slow, other = queries.listed(store, "scalar-abc")
    assert good.parameters == {"IMPL": "scalar", "BLOCK_M": 16}
    assert list(other.parameters.items()) == [("IMPL", "scalar"), ("BIG", 2**63 - 1), ("LESS", -1), ("MODE", "a")]
    assert [good.median_us, good.baseline_us, good.seconds] == [pytest.approx(each) for each in (80.0, 100.0, 4.0)]
    assert (wrong.fault_code, wrong.fault_case, wrong.objective) == ("G2.T1", "Q3 2x3x509x509 randn", None)
    assert (slow.verdict, slow.censored) == ("raced_out", True)
    assert (good.build_s, good.check_s, good.measure_s) == pytest.approx((1.5, 2.0, 0.5))
    assert other.variant_digest == WORDS.digest


def test_trials_are_listed_as_they_end_and_from_one_of_them_on(either: Store) -> None:
    """Readers follow a study by its revision, and read what was recorded since the last one they saw."""
    store, session = either, either.start_session("scalar-abc", CALIBRATION, {})
    for number, tile in ((3, 16), (0, 32)):
        store.record("scalar-abc", session, number, measured(tile, 50.0 + tile))
    before = queries.revision(store, "scalar-abc")
    assert before == queries.revision(store, "scalar-abc")
    assert (before.trials, before.standing, before.revoked, before.others[:2]) == (2, 2, 0, (1, 0))
    store.record("scalar-abc", session, 1, rejected(64))
    assert [each.number for each in queries.listed(store, "scalar-abc")] == [3, 0, 1]
    assert [each.number for each in queries.listed(store, "scalar-abc", before.last)] == [1]
    store.revoke("scalar-abc", 3, "wrong on other inputs")
    after = queries.revision(store, "scalar-abc")
    assert (after.trials, after.standing, after.revoked) == (3, 2, 1)
    assert after.tag != before.tag
    taken, *_ = queries.listed(store, "scalar-abc")
    assert taken.objective is None
    assert taken.median_us is None
    assert (taken.revoked, taken.revoked_reason) == (True, "wrong on other inputs")


def test_csv_has_a_column_a_parameter(store: Store, session: int) -> None:
    odd = measured(32, 50.0).model_copy(update={"variant": WORDS})
    record_all(store, session, [measured(16, 80.0), rejected(64), odd])
    table = trials_of(store, "scalar-abc")
    rows = list(csv.DictReader(io.StringIO(as_csv(table))))
    assert list(rows[0]) == list(columns(table))
    assert [row["IMPL"] for row in rows] == ["scalar"] * 3
    assert [row["MODE"] for row in rows] == ["", "", "a"]
    assert [row["BIG"] for row in rows] == ["", "", str(2**63 - 1)]
    assert [float(row["speedup"]) if row["speedup"] else None for row in rows] == [e["speedup"] for e in table.json()]
