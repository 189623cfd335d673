"""The schema: what the migrations make, that none that has landed is edited, and stores of another schema."""

from __future__ import annotations

import hashlib
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from autotuner.store import Store, migrations
from autotuner.store.tables import Base
from autotuner.values.errors import OlderStoreError, StoreError

LANDED = {"v0200_first.py": "b526d3269e42ac6742f03b0439d571d5f8ee45aaa02df53df78e81790647ff6a"}
"""SHA-256 of each migration as it landed. Stores exist that it has made: mend one by another migration."""


def test_no_migration_that_has_landed_is_edited() -> None:
    files = (Path(migrations.__file__).parent / "versions").glob("v*.py")
    assert {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files} == LANDED


def test_the_migrations_make_what_the_tables_say(opened: Store) -> None:
    def ours(name: str | None, kind: str, _parents: object) -> bool:
        return kind != "table" or (str(name).startswith("at_") and name != migrations.VERSION_TABLE)

    with opened.database._engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"include_name": ours, "compare_type": True})
        assert compare_metadata(context, Base.metadata) == []


def test_a_new_store_has_our_tables_alone(store: Store) -> None:
    with store.database._engine.connect() as connection:
        tables = {name for (name,) in connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert all(name.startswith("at_") for name in tables)
    assert tables == {*Base.metadata.tables, migrations.VERSION_TABLE}


def test_the_head_is_the_last_migration() -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    config.set_main_option("path_separator", "os")
    script = ScriptDirectory.from_config(config)
    assert script.get_heads() == [migrations.HEAD]
    assert script.get_bases() == [migrations.OLDEST]


def relabelled(path: Path, schema: str) -> str:
    """A store that says that its schema is this one."""
    Store.open(str(path)).close()
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("UPDATE at_version SET version_num = ?", (schema,))
    return str(path)


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize(
    ("schema", "words"), [("9999", "newer autotuner"), ("0005", "checkout of autotuner 0.1.0 that wrote it reads it")]
)
def test_a_store_that_this_version_cannot_read_says_what_does(
    path: Path, schema: str, words: str, read_only: bool
) -> None:
    with pytest.raises(StoreError, match=words) as refused:
        Store.open(relabelled(path, schema), create=False, read_only=read_only)
    assert "\n" not in str(refused.value)
    assert not isinstance(refused.value, OlderStoreError)


def test_an_older_store_is_not_changed_where_it_is_only_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = relabelled(path, migrations.OLDEST)
    monkeypatch.setattr(migrations, "HEAD", "0999")
    with pytest.raises(OlderStoreError, match="open it once without --read-only"):
        Store.open(where, read_only=True)
