"""The schema of a release, stores of another one, and a store that has gone."""

import hashlib
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy.dialects import registry
from sqlalchemy.schema import CreateIndex, CreateTable, DDLElement

from autotuner.store import Store
from autotuner.store.patience import Patience
from autotuner.store.tables import SCHEMA, Base
from autotuner.values.errors import StoreError, StoreUnavailableError
from tests.helpers.refusing import refused

RELEASED = {"0200": "1eb80228dcb970773b3a2d79fe7f6fe407d42761de6e8cd9f845ef5e54bc6a75"}
"""The digest of what makes each schema's tables. Stores exist that have them: change a table by a migration."""
LATER = {"at_profile"}
"""Tables that a store may lack: they are made when they are first written."""


@pytest.fixture(autouse=True)
def new_stores_are_copies() -> None:
    """They are not: here the making is tested, as it is on every PostgreSQL server."""


def test_the_tables_of_a_schema_do_not_change() -> None:
    tables = [each for each in Base.metadata.sorted_tables if each.name not in LATER]
    indexes = sorted((index for table in tables for index in table.indexes), key=lambda each: str(each.name))
    found = hashlib.sha256()
    for name in ("sqlite", "postgresql"):
        dialect = registry.load(name)()
        made: list[DDLElement] = [*map(CreateTable, tables), *map(CreateIndex, indexes)]
        for each in made:
            found.update(" ".join(str(each.compile(dialect=dialect)).split()).encode())
    assert {SCHEMA: found.hexdigest()} == RELEASED


def test_a_new_store_has_our_tables_alone(store: Store) -> None:
    with store.database._engine.connect() as connection:
        tables = {name for (name,) in connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert all(name.startswith("at_") for name in tables)
    assert tables == {*Base.metadata.tables}


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize(
    ("schema", "words"), [("9999", "newer autotuner"), ("0005", "checkout of autotuner 0.1.0 that wrote it reads it")]
)
def test_a_store_that_this_version_cannot_read_says_what_does(
    path: Path, schema: str, words: str, read_only: bool
) -> None:
    Store.open(str(path)).close()
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("UPDATE at_version SET version_num = ?", (schema,))
    with refused(StoreError, words):
        Store.open(str(path), create=False, read_only=read_only)


# Waiting for a store that has gone ------------------------------------------------------------------------------------


class Clock:
    """A clock that goes on by what is slept, and a store that is gone until a moment of it."""

    def __init__(self, gone_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self._gone_s = 0.0, gone_s
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(time, "sleep", self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.now += seconds

    def ask(self) -> str:
        if self.now < self._gone_s:
            raise StoreUnavailableError("the server does not answer")
        return "an answer"


def test_a_line_when_it_goes_one_a_minute_and_one_when_it_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, patience = Clock(150.0, monkeypatch), Patience()
    said: list[str] = []
    pulses: list[float] = []
    failed: list[float] = []
    patience.seconds, patience.say, patience.pulse = float("inf"), said.append, lambda: pulses.append(clock.now)
    for _ in range(2):
        assert patience.keep_on(clock.ask, lambda: failed.append(clock.now)) == "an answer"
    assert said == [
        "keeps what it has and waits for the store: the server does not answer",
        "keeps what it has and waits for the store for 60 s: the server does not answer",
        "keeps what it has and waits for the store for 120 s: the server does not answer",
        "the store is back after 150 s",
    ]
    assert pulses == [float(second) for second in range(150)]
    assert failed == [0.0]


@pytest.mark.parametrize("seconds", [0.0, 10.0])
def test_it_ends_and_raises_what_failed_last(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    clock, patience = Clock(150.0, monkeypatch), Patience()
    patience.seconds = seconds
    with pytest.raises(StoreUnavailableError, match="does not answer"):
        patience.keep_on(clock.ask)
    assert clock.now == seconds
