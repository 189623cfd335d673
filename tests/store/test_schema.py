"""The schema: that the one of a release does not change, and stores of another one."""

import hashlib
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy.dialects import registry
from sqlalchemy.schema import CreateIndex, CreateTable, DDLElement

from autotuner.store import Store
from autotuner.store.tables import SCHEMA, Base
from autotuner.values.errors import StoreError

RELEASED = {"0200": "1eb80228dcb970773b3a2d79fe7f6fe407d42761de6e8cd9f845ef5e54bc6a75"}
"""The digest of what makes each schema's tables. Stores exist that have them: change a table by a migration."""


def test_the_tables_of_a_schema_do_not_change() -> None:
    tables = Base.metadata.sorted_tables
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
    with pytest.raises(StoreError, match=words) as refused:
        Store.open(str(path), create=False, read_only=read_only)
    assert "\n" not in str(refused.value)
