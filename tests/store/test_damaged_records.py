"""A store whose rows hold what no version of ours has written: one line that says so, whatever is asked of it."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from autotuner.store import Store, queries
from autotuner.tuning.finals import standings
from autotuner.values.errors import StoreError
from tests.helpers.recorded import CALIBRATION, hold_finals, measured, record_all, study_record

STUDY = "scalar-abc"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A study with two trials, and finals of both."""
    with Store.open(str(tmp_path / "studies.db")) as store:
        store.ensure_study(study_record())
        session = store.start_session(STUDY, CALIBRATION, {"torch": "2.11"})
        record_all(store, session, [measured(32, 80.0), measured(64, 90.0)])
        hold_finals(store, {32: 80.0, 64: 90.0}, {32: 0, 64: 1})
    return tmp_path / "studies.db"


def damage(path: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute(statement, values).rowcount > 0
        connection.commit()


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("space_document", '{"name" "scalar"}'),
        ("space_document", '["scalar"]'),
        ("problems", '["(1,8,512,64)"]'),
        ("problems", "{}"),
        ("device", '{"backend": "cpu"}'),
    ],
)
def test_a_study_that_cannot_be_read(path: Path, column: str, value: str) -> None:
    damage(path, f"UPDATE at_study SET {column} = ?", value)
    with Store.open(str(path)) as store, pytest.raises(StoreError, match="record that cannot be read"):
        queries.study(store, STUDY)


def test_finals_that_confirm_who_was_not_in_them(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        (document,) = connection.execute("SELECT document FROM at_finals").fetchone()
    digest = document.partition('"digest":"')[2][:64]
    assert len(digest) == 64
    damage(path, "UPDATE at_finals SET standing = replace(standing, ?, ?)", digest, "0" * 64)
    with Store.open(str(path)) as store:
        for ask in (standings.best, standings.every_confirmed, standings.leaderboard):
            with pytest.raises(StoreError, match="which was not in them"):
                ask(store, STUDY)


@pytest.mark.parametrize("count", [4096, 8192, 20000])
def test_a_store_whose_end_is_garbled_is_not_written_to(path: Path, count: int) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    garbled = path.read_bytes()[:-count] + b"\xa5" * count
    path.write_bytes(garbled)
    with pytest.raises(StoreError, match=r"is damaged \(.*\): restore a copy") as told:
        Store.open(str(path))
    assert "\n" not in str(told.value)
    assert path.read_bytes()[100:] == garbled[100:], "the header has the journal's mode, the rest is as it was"


def test_a_version_of_bytes(path: Path) -> None:
    damage(path, "UPDATE at_version SET version_num = ?", b"\xff\x00")
    with pytest.raises(StoreError, match="autotuner"):
        Store.open(str(path))


def test_a_schema_that_is_no_text(path: Path) -> None:
    """SQLite quotes it in its error, and Python cannot read that."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(
            "UPDATE sqlite_master SET name = CAST(? AS TEXT), sql = 'CREATE' WHERE name = 'at_trial'", (b"\xff",)
        )
        connection.commit()
    with pytest.raises(StoreError, match="is damaged"):
        Store.open(str(path))
