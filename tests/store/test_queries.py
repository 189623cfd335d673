"""What can be asked of a store."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from autotuner.store import Store, queries
from autotuner.values.errors import StoreError
from tests.helpers.recorded import (
    CALIBRATION,
    study_record,
)


def test_studies_are_named_by_prefix_or_last_activity(store: Store) -> None:
    store.ensure_study(study_record("scalar-abd"))
    store.ensure_study(study_record("simd-xyz"))
    store.start_session("scalar-abd", CALIBRATION, {})
    assert queries.resolve_study(store) == "scalar-abd"
    assert queries.every_progress(store)[0].name == "scalar-abd"
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
    assert [each.name for each in queries.every_progress(store)] == ["scalar-abc"]
    with pytest.raises(StoreError, match="of-another is of the op 'gone', which is not here; install its package"):
        queries.study(store, "of-another")
