"""A store with a whole sweep, stores that another program locks, and stores that are quickly made."""

import contextlib
import shutil
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import select
from sqlalchemy.orm import Session

from autotuner.store import FinalsRecord, Store, queries
from autotuner.store.tables import FinalsRow

SAMPLE = Path(__file__).parent.parent / "stores" / "sample.sql"


def sample_store(path: Path) -> str:
    """Makes a store of a whole sweep of a simulated space with its finals; the name of its study. It has measured,
    raced out, rejected and revoked trials, in our tables and Optuna's."""
    write_empty(path)
    with closing(sqlite3.connect(path)) as raw:
        raw.executescript(SAMPLE.read_text())
        (name,) = raw.execute("SELECT name FROM at_study").fetchone()
    return str(name)


@contextmanager
def transaction(store: Store, *, writes: bool = False) -> Iterator[Session]:
    """One of a test's own."""
    with Session(store.database._writer if writes else store.database._engine) as session, session.begin():
        yield session


def all_finals(store: Store, study: str) -> list[FinalsRecord]:
    """Those of a store with one study, the last begun first, also those that did not come to an end."""
    with transaction(store) as session:
        rows = session.scalars(select(FinalsRow).order_by(FinalsRow.id.desc()))
        return [queries._finals(session, row, study) for row in rows]


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another program writes while the block runs."""
    with closing(sqlite3.connect(path, timeout=60, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            other.execute("ROLLBACK")


def write_empty(path: Path) -> None:
    """Makes a store without anything: our tables and Optuna's."""
    with Store.open(str(path)) as store:
        store.optuna_storage()


def copied_first(
    check: Callable[[Path, bool, bool], None], empty: Callable[[], Path]
) -> Callable[[Path, bool, bool], None]:
    """What a store asks of its file before it opens it; and a file that is not there yet becomes a copy of an empty
    store, whole at once, as another thread may open it too."""

    def checked(path: Path, create: bool, read_only: bool) -> None:
        check(path, create, read_only)
        if read_only or path.exists() or str(path).startswith("file:"):
            return
        beside = shutil.copyfile(empty(), path.with_name(str(uuid.uuid4())))
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(beside)
        beside.unlink()

    return checked


def scripts_read_once() -> Callable[[Config], ScriptDirectory]:
    """`ScriptDirectory.from_config` that keeps what it found: for each store that is opened Optuna asks up to three
    times what its newest migration is, and all of them are loaded for the answer."""
    read, kept = ScriptDirectory.from_config, dict[str | None, ScriptDirectory]()

    def found(config: Config) -> ScriptDirectory:
        folder = config.get_main_option("script_location")
        if folder not in kept:
            kept[folder] = read(config)
        return kept[folder]

    return found
