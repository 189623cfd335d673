"""Every trial as a list, read from columns; the table of parameters."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotuner.store import Store, queries, trials
from autotuner.values.variant import Variant
from autotuner.views import trial_files
from autotuner.views.trials_table import trials_of
from tests.helpers.recorded import (
    CALIBRATION,
    measured,
    raced_out,
    record_all,
    rejected,
    study_record,
)

WORDS = Variant(family="sdpa", backend="cpu", impl="scalar", parameters={"MODE": "a", "BIG": 2**63 - 1, "LESS": -1})


@pytest.fixture(params=["sqlite", "postgresql"])
def either(request: pytest.FixtureRequest, path: Path) -> Iterator[Store]:
    """A store with one study, on each kind of database."""
    place = str(path) if request.param == "sqlite" else request.getfixturevalue("url")
    with Store.open(place) as opened:
        opened.ensure_study(study_record())
        yield opened


def test_a_trial_is_listed_with_its_parameters_and_what_came_of_it(either: Store) -> None:
    store, session = either, either.start_session("scalar-abc", CALIBRATION, {})
    odd = measured(32, 50.0).model_copy(update={"variant": WORDS})
    record_all(store, session, [measured(16, 80.0), rejected(64), raced_out(8, 90.0), odd])
    good, wrong, slow, other = trials.listed(store, "scalar-abc")
    assert good.parameters == {"IMPL": "scalar", "BLOCK_M": 16}
    assert list(other.parameters.items()) == [("IMPL", "scalar"), ("BIG", 2**63 - 1), ("LESS", -1), ("MODE", "a")]
    assert [good.median_us, good.baseline_us, good.seconds] == [pytest.approx(each) for each in (80.0, 100.0, 4.0)]
    assert (wrong.fault, wrong.case, wrong.objective) == ("G2.T1", "Q3 2x3x509x509 randn", None)
    assert (slow.verdict, slow.censored) == ("raced_out", True)
    assert (good.build_s, good.check_s, good.measure_s) == pytest.approx((1.5, 2.0, 0.5))
    assert other.variant == WORDS.digest


def test_trials_are_listed_as_they_end_and_from_one_of_them_on(either: Store) -> None:
    """Readers follow a study by its revision, and read what was recorded since the last one they saw."""
    store, session = either, either.start_session("scalar-abc", CALIBRATION, {})
    for number, tile in ((3, 16), (0, 32)):
        store.record("scalar-abc", session, number, measured(tile, 50.0 + tile))
    before = queries.revision(store, "scalar-abc")
    assert before == queries.revision(store, "scalar-abc")
    assert (before.trials, before.standing, before.revoked, before.sessions, before.finished) == (2, 2, 0, 1, 0)
    store.record("scalar-abc", session, 1, rejected(64))
    assert [each.number for each in trials.listed(store, "scalar-abc")] == [3, 0, 1]
    assert [each.number for each in trials.listed(store, "scalar-abc", before.last)] == [1]
    store.revoke("scalar-abc", 3, "wrong on other inputs")
    after = queries.revision(store, "scalar-abc")
    assert (after.trials, after.standing, after.revoked) == (3, 2, 1)
    assert after.tag != before.tag
    taken, *_ = trials.listed(store, "scalar-abc")
    assert taken.objective is None
    assert taken.median_us is None
    assert (taken.revoked, taken.revoked_reason) == (True, "wrong on other inputs")


def test_csv_and_parquet_hold_the_same(store: Store, session: int) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    odd = measured(32, 50.0).model_copy(update={"variant": WORDS})
    record_all(store, session, [measured(16, 80.0), rejected(64), odd])
    table = trials_of(store, "scalar-abc")
    rows = list(csv.DictReader(io.StringIO(trial_files.as_csv(table))))
    kept = parquet.read_table(io.BytesIO(trial_files.as_parquet(table)))
    assert list(rows[0]) == kept.column_names == list(trial_files.columns(table))
    assert [row["IMPL"] for row in rows] == ["scalar"] * 3
    assert [row["MODE"] for row in rows] == ["", "", "a"]
    assert kept.column("BIG").to_pylist() == [None, None, 2**63 - 1]
    assert kept.column("speedup").to_pylist() == [float(row["speedup"]) if row["speedup"] else None for row in rows]
    empty = parquet.read_table(io.BytesIO(trial_files.as_parquet(table._replace(rows=table.rows[1:2]))))
    assert empty.schema.field("speedup").type == kept.schema.field("speedup").type
