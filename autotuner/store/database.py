"""The database behind the store: connections, transactions, schema version, and errors in words a person can act on."""

import contextlib
import errno
import fcntl
import os
import shutil
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event, exc, insert, inspect, select, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.orm import Session
from sqlalchemy.pool import QueuePool

from autotuner.store.patience import Patience
from autotuner.store.tables import SCHEMA, Base, VersionRow
from autotuner.values.errors import AutotunerError, DiskFullError, NoStoreError, StoreError, StoreUnavailableError
from autotuner.values.files import NETWORKS, file_system_of, text_of, why

P = ParamSpec("P")
T = TypeVar("T")

BUSY_SECONDS = 60.0
"""Seconds that two writers of a SQLite file wait for each other."""
TURN_MS = 1000
"""Of these, milliseconds in one call of SQLite, which no signal ends."""
SERVER = {"connect_timeout": 10, "keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}
"""What libpq is asked for unless the URL says otherwise, seconds: a server's host that has gone does not say so."""
OPENING = 0x617574
"""Number of the lock under which one process at a time opens a store on a server."""
PRAGMAS = ("synchronous = NORMAL", "foreign_keys = ON")
_SPARE_BYTES = 1 << 20
_CHECKED_BYTES = 64 << 20
"""A store up to this size is looked through whenever it is opened; a larger one when something is to be written."""


class TunedConnection(sqlite3.Connection):
    """A SQLite connection with the store's settings.

    Settings are a connection's own affair in SQLite and Optuna builds an engine of its own, so they are made here,
    where both engines open their connections (`connect_args={"factory": TunedConnection}`).
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        try:
            self.execute(f"PRAGMA busy_timeout = {int(BUSY_SECONDS * 1000)}")
            self._use_wal()
            for pragma in PRAGMAS:
                self.execute(f"PRAGMA {pragma}")
        except BaseException:
            self.close()
            raise

    def _use_wal(self) -> None:
        """Two processes that open a new file at once: SQLite answers "locked" to one, without waiting."""
        deadline = time.monotonic() + BUSY_SECONDS
        while self.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            try:
                self.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if not _is(error, "SQLITE_BUSY", "SQLITE_LOCKED") or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)


def _is(error: sqlite3.Error, *names: str) -> bool:
    """Whether the error is one of these, extended codes (SQLITE_BUSY_SNAPSHOT) included."""
    found = getattr(error, "sqlite_errorname", None) or ""
    return any(found == name or found.startswith(f"{name}_") for name in names)


def parse(url_or_path: str) -> URL:
    """A SQLAlchemy URL; what is no URL is the path of a SQLite file. Raises StoreError for another kind of database."""
    if url_or_path == ":memory:":
        raise StoreError("the store must outlive its process: give the path of a file instead of :memory:")
    if "://" not in url_or_path:
        try:
            return URL.create("sqlite", database=text_of(Path(url_or_path).expanduser().absolute()))
        except (OSError, RuntimeError) as error:
            raise StoreError(f"{url_or_path}: {why(error)}; give another path for the store") from None
    try:
        url = make_url(url_or_path)
    except (exc.ArgumentError, ValueError):
        raise StoreError("the store's URL cannot be read: give a file's path, or postgresql://...") from None
    if url.get_backend_name() not in ("sqlite", "postgresql"):
        raise StoreError(f"the store cannot be a {url.get_backend_name()} database: use SQLite (a path) or PostgreSQL")
    if url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:"):
        raise StoreError("the store must outlive its process: give the path of a file instead of :memory:")
    return url


def connect_args(url: URL) -> dict[str, Any]:
    """What an engine hands to the driver, ours and Optuna's alike."""
    if url.get_backend_name() != "sqlite":
        return {name: value for name, value in SERVER.items() if name not in url.query}
    return {"factory": TunedConnection, "timeout": BUSY_SECONDS}


def _is_for_reading(label: str) -> bool:
    """Whether there is a file that this process may read, and neither it nor its folder may be written."""
    path = Path(label)
    return path.is_file() and not all(os.access(each, os.W_OK) for each in (path, path.parent))


def _opened_to_read(path: Path) -> sqlite3.Connection:
    """A connection to a SQLite file that writes nothing, also where neither the file nor its folder can be written:
    such a file has no writer, and what a writer would share with readers is not asked for."""
    lonely = _is_for_reading(str(path))
    beside = Path(f"{path}-wal")
    immutable = "&immutable=1" if lonely and not (beside.exists() and beside.stat().st_size) else ""
    uri = f"{path.absolute().as_uri()}?mode=ro{immutable}"
    connection = sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA query_only = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def label_of(url: URL) -> str:
    """What messages call a database: the file, or the URL without its password."""
    if url.get_backend_name() == "sqlite":
        return url.database or ""
    return url.render_as_string(hide_password=True)


class Database:
    """One database: `read` and `write` are transactions, each whole or not at all."""

    def __init__(self, url: URL, *, create: bool, read_only: bool = False, patience: Patience | None = None) -> None:
        self.label = label_of(url)
        # Questions are answered of a store that may only be read, as on a read-only mount.
        read_only = read_only or (url.get_backend_name() == "sqlite" and not create and _is_for_reading(self.label))
        self.url, self._read_only = url, read_only
        if self.is_sqlite:
            self._check_file(Path(self.label), create, read_only)
        self.patience = patience or Patience()
        self.wait_s = BUSY_SECONDS
        """Seconds that a transaction waits for another program's lock."""
        self.fences: dict[str, str] = {}
        """The leases that this process holds through this database: what they are of, by token."""
        self.guard: Callable[[Connection], None] = lambda connection: None
        """Asked in each plain writing transaction whether this process may still write."""
        self._engine = self._build_engine()
        self._writer = self._engine.execution_options(autotuner_write=True)
        try:
            self.attempt(lambda: self._check(create))
        except BaseException:
            self.close()
            raise

    @property
    def is_sqlite(self) -> bool:
        """False for PostgreSQL."""
        return self.url.get_backend_name() == "sqlite"

    def close(self) -> None:
        """Closes the connections."""
        self._engine.dispose()

    def attempt(self, call: Callable[[], T], failed: Callable[[], None] = lambda: None) -> T:
        """What the call returns. All that reaches the database, over our engine or Optuna's, goes through here: a
        locked, full or lost one is waited for as `patience` says, and the call is made again.

        The connection may be lost after a commit: a call that is made again finds what it has written itself. `failed`
        is called once, after the first failure.
        """

        def once() -> T:
            with self.errors():
                return call()

        return self.patience.keep_on(once, failed)

    def read(self, query: Callable[[Session], T]) -> T:
        """The query's answer in one transaction, which sees one state of the database."""
        return self.attempt(lambda: self._transacted(self._engine, query))

    def write(self, change: Callable[[Session], T]) -> T:
        """What the change returns. Its transaction holds the write lock from its start, so that what it reads stays
        true until it ends."""
        return self.attempt(lambda: self._transacted(self._writer, change))

    def _transacted(self, engine: Engine, use: Callable[[Session], T]) -> T:
        with self.records(), Session(engine, expire_on_commit=False) as session, session.begin():
            return use(session)

    def write_plainly(self, change: Callable[[Connection], T], failed: Callable[[], None] = lambda: None) -> T:
        """As `write`, where this process may still write, and without a session: that takes longer to make than a plain
        statement takes. `failed` as of `attempt`."""

        def call() -> T:
            with self._writer.begin() as connection:
                self.guard(connection)
                return change(connection)

        return self.attempt(call, failed)

    @staticmethod
    def now(session: Session | Connection) -> datetime:
        """The database's time, by which all that use it agree."""
        connection = session.connection() if isinstance(session, Session) else session
        if connection.dialect.name == "sqlite":
            found = connection.execute(text("SELECT strftime('%Y-%m-%d %H:%M:%f', 'now')")).scalar_one()
            return datetime.fromisoformat(found).replace(tzinfo=UTC)
        found = connection.execute(text("SELECT clock_timestamp()")).scalar_one()
        assert isinstance(found, datetime)
        return found.astimezone(UTC)

    @contextmanager
    def records(self, *more: type[Exception]) -> Iterator[None]:
        """As `errors`; and what a row raises that does not hold what was written becomes StoreError, too: the usual
        errors of Python's, and more."""
        unread: tuple[type[Exception], ...] = (ValueError, TypeError, OverflowError, exc.InvalidRequestError, *more)
        try:
            with self.errors():
                yield
        except unread as error:
            first = next(iter(str(error).splitlines()), type(error).__name__)
            raise StoreError(f"{self.label} holds a record that cannot be read ({first}): restore a copy") from error

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turns the database's errors, Optuna's wrappings of them included, into StoreError or DiskFullError."""
        try:
            yield
        except Exception as error:
            mended = None if isinstance(error, AutotunerError) else self._in_words(error)
            if mended is None:
                raise
            raise mended from error

    def _in_words(self, error: BaseException | None) -> StoreError | DiskFullError | None:
        while error is not None:
            if isinstance(error, sqlite3.Error):
                return self._sqlite_in_words(error)
            if isinstance(error, UnicodeDecodeError) and self.is_sqlite:  # it quotes its own damaged schema
                return StoreError(f"{self.label} is damaged ({error}): restore a copy, or try `sqlite3 FILE .recover`")
            # the server, or the way to it, has failed, and not the statement
            lost = isinstance(error, exc.OperationalError | exc.InterfaceError)
            if isinstance(error, exc.DBAPIError) and not self.is_sqlite and (lost or error.connection_invalidated):
                first = next(iter(str(error.orig).strip().splitlines()), type(error.orig).__name__)
                if getattr(error.orig, "sqlstate", None) == "53100":
                    return DiskFullError(f"{self.label}: the server's disk is full ({first}): free space there")
                return StoreUnavailableError(f"{self.label}: {first}: check the server and the URL")
            error = error.__cause__
        return None

    def _sqlite_in_words(self, error: sqlite3.Error) -> StoreError | DiskFullError | None:
        where = self.label
        if isinstance(error, sqlite3.IntegrityError | sqlite3.ProgrammingError):
            return None  # a fault of this program, not of the user's
        if _is(error, "SQLITE_FULL") or (_is(error, "SQLITE_IOERR") and self._disk_is_full()):
            return DiskFullError(f"{where}: the disk is full: free space and run again, nothing recorded is lost")
        if _is(error, "SQLITE_NOTADB"):
            return StoreError(f"{where} is not a study store (no SQLite database): give another path")
        if _is(error, "SQLITE_CORRUPT"):
            return StoreError(f"{where} is damaged ({error}): restore a copy, or try `sqlite3 FILE .recover`")
        if _is(error, "SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_AUTH"):
            return StoreError(f"{where} cannot be written ({error}): make it and its folder writable")
        if _is(error, "SQLITE_BUSY", "SQLITE_LOCKED"):
            return StoreUnavailableError(
                f"{where} was locked by another program for {self.wait_s:.0f} s: close that one"
            )
        return StoreError(f"{where}: {error}: check the disk and the file, or give another path")

    def _disk_is_full(self) -> bool:
        """SQLite reports some failed writes for want of space (of the shared-memory file, say) as plain I/O errors."""
        try:
            return shutil.disk_usage(Path(self.label).parent).free < _SPARE_BYTES
        except OSError as error:
            return error.errno == errno.ENOSPC

    @staticmethod
    def _check_file(path: Path, create: bool, read_only: bool) -> None:
        path = Path(str(path).removeprefix("file:"))
        _require_regular(path)
        if path.is_dir():
            raise StoreError(f"{path} is a folder: give the path of a file in it, such as {path / 'studies.db'}")
        if not path.parent.is_dir():
            raise StoreError(f"{path.parent} is not a folder: create it, or give another path for the store")
        if not path.exists() and not create:
            raise NoStoreError(f"{path} does not exist: `autotuner tune` makes one, --store names another")
        if path.exists() and not os.access(path, os.R_OK if read_only else os.R_OK | os.W_OK):
            how = "read" if read_only else "read and written"
            raise StoreError(f"{path} cannot be {how} by this user: change its permissions")
        kind = file_system_of(path.parent)
        if kind in NETWORKS and not read_only:
            raise StoreError(
                f"{path} lies on {kind}, where SQLite cannot keep hosts apart: give --store a path on a local disk, or"
                " postgresql://..."
            )
        # Beside the file SQLite keeps a journal, so even reading needs a folder that can be written.
        if not read_only and not os.access(path.parent, os.W_OK | os.X_OK):
            raise StoreError(f"{path.parent} cannot be written by this user: mend that, or give another --store")

    def _build_engine(self) -> Engine:
        arguments = connect_args(self.url)
        if self.is_sqlite and self._read_only:
            path = Path(self.label)
            return create_engine("sqlite://", creator=lambda: _opened_to_read(path), poolclass=QueuePool)
        options: dict[str, Any] = {} if self.is_sqlite else {"pool_pre_ping": True}
        if self.is_sqlite:
            arguments |= {"isolation_level": None}  # the driver begins nothing by itself, we do, below
        elif self._read_only:
            options["execution_options"] = {"postgresql_readonly": True}
        try:
            engine = create_engine(self.url, connect_args=arguments, **options)
        except (exc.ArgumentError, TypeError, ValueError) as error:
            raise StoreError(f"{self.label}: the URL cannot be used ({error}): mend it") from None
        except (ImportError, exc.NoSuchModuleError) as error:
            raise StoreError(f"{self.label}: no driver for it ({error}): pip install 'psycopg[binary]'") from None
        if self.is_sqlite:
            event.listen(engine, "begin", self._begin)
            event.listen(engine, "connect", lambda made, _: made.execute(f"PRAGMA busy_timeout = {TURN_MS}"))
        return engine

    def _begin(self, connection: Connection) -> None:
        """Waits for the write lock in short turns, so that a signal is heard meanwhile."""
        write = connection.get_execution_options().get("autotuner_write", False)
        until = time.monotonic() + self.wait_s
        while True:
            try:
                connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")
                return
            except exc.OperationalError as error:
                locked = isinstance(error.orig, sqlite3.Error) and _is(error.orig, "SQLITE_BUSY", "SQLITE_LOCKED")
                if not locked or time.monotonic() >= until:
                    raise

    def _check(self, create: bool) -> None:
        self._check_whole(create)
        self._check_schema(create)

    def _check_whole(self, create: bool) -> None:
        """Raises StoreError where SQLite's own structures are damaged: much of such a file may still be read, and what
        is written to it is lost."""
        if not self.is_sqlite or (not create and _size_of(self.label) > _CHECKED_BYTES):
            return
        with self._engine.begin() as connection:
            found = connection.execute(text("PRAGMA quick_check(1)")).scalar()
        if found != "ok":
            first = " ".join(str(found).split())
            raise StoreError(f"{self.label} is damaged ({first}): restore a copy, or try `sqlite3 FILE .recover`")

    def _check_schema(self, create: bool) -> None:
        """Makes the tables of a new store. Raises StoreError where the schema is not the one that this version has."""
        with self._engine.begin() as connection:
            found = _schema_version(connection)
        if found is None and not create:
            raise NoStoreError(f"{self.label} holds no autotuner studies: start a search to make some")
        if found is not None and found > SCHEMA:
            raise StoreError(
                f"{self.label} was written by a newer autotuner (schema {found}, this one knows {SCHEMA}): upgrade"
                " autotuner"
            )
        if found is not None and found < SCHEMA:
            raise StoreError(
                f"{self.label} was written before the first release (schema {found}; 0.2 has {SCHEMA}): only the"
                " checkout of autotuner 0.1.0 that wrote it reads it; give another path for the store"
            )
        if found is None:
            with self._writer.begin() as connection:
                self._make_tables(connection)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """No other process makes Optuna's tables in the same database while the block runs."""
        with contextlib.ExitStack() as stack:
            if self.is_sqlite:  # of the folder: to close the file once more would end SQLite's own locks of it
                stack.callback(os.close, folder := os.open(Path(self.label.removeprefix("file:")).parent, os.O_RDONLY))
                fcntl.flock(folder, fcntl.LOCK_EX)
            else:
                stack.enter_context(self._engine.begin()).execute(text(f"SELECT pg_advisory_xact_lock({OPENING})"))
            yield

    def _make_tables(self, connection: Connection) -> None:
        """Makes them, unless another process has made them meanwhile."""
        if not self.is_sqlite:
            connection.execute(text(f"SELECT pg_advisory_xact_lock({OPENING})"))
        if _schema_version(connection) is None:
            Base.metadata.create_all(connection)
            connection.execute(insert(VersionRow).values(version_num=SCHEMA))


class _OfDatabase(Protocol):
    @property
    def database(self) -> Database: ...


Owner = TypeVar("Owner", bound=_OfDatabase)


def reads(query: Callable[Concatenate[Owner, Session, P], T]) -> Callable[Concatenate[Owner, P], T]:
    """Gives a function of a store, or a method, its session: in a transaction of `Database.read`. Callers give none."""

    @wraps(query)
    def read(owner: Owner, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return owner.database.read(lambda session: query(owner, session, *args, **kwargs))

    return read


def writes(change: Callable[Concatenate[Owner, Session, P], T]) -> Callable[Concatenate[Owner, P], T]:
    """The same of `Database.write`. The change may be made twice, where the connection was lost."""

    @wraps(change)
    def write(owner: Owner, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return owner.database.write(lambda session: change(owner, session, *args, **kwargs))

    return write


def _size_of(label: str) -> int:
    with contextlib.suppress(OSError):
        return Path(label.removeprefix("file:")).stat().st_size
    return 0


def _require_regular(path: Path) -> None:
    """Refuses a device, a pipe or the like in the place of the store or of what SQLite puts beside it."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        beside = Path(f"{path}{suffix}")
        try:
            mode = beside.stat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, RuntimeError) as error:
            raise StoreError(f"{path}: {why(error)}; give another path for the store") from None
        if not stat.S_ISREG(mode) and not (stat.S_ISDIR(mode) and not suffix):
            raise StoreError(f"{beside} is no regular file: give another path for the store")


def _schema_version(connection: Connection) -> str | None:
    if not inspect(connection).has_table(VersionRow.__tablename__):
        return None
    found = connection.scalar(select(VersionRow.version_num))
    return None if found is None else str(found)  # SQLite keeps bytes in a column of text, too
