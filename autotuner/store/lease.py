"""The lease: one driver at a time drives a store. A dead driver's lease is taken over, a living one's is refused."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sqlalchemy import text
from sqlalchemy.orm import Session

from autotuner.store.database import Database
from autotuner.store.tables import LeaseRow
from autotuner.values.errors import StoreError
from autotuner.values.model import Model

STALE = timedelta(seconds=120)
"""A holder that this host cannot look at (it runs on another one) counts as dead when silent for so long."""

DRIVER = "driver"


class Process(Model):
    """A process, told apart from a later one with the same number. A field is empty where the system does not say."""

    host: str
    boot_id: str
    namespace: str
    pid: int
    pid_started: str

    @classmethod
    def current(cls) -> Process:
        """Who is running this."""
        return cls(
            host=socket.gethostname(),
            boot_id=_read("/proc/sys/kernel/random/boot_id"),
            namespace=_link("/proc/self/ns/pid"),
            pid=os.getpid(),
            pid_started=start_of(os.getpid()) or "",
        )


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _link(path: str) -> str:
    try:
        return str(Path(path).readlink())
    except OSError:
        return ""


def start_of(pid: int) -> str | None:
    """When the process started, in clock ticks since boot; "" where the system does not say; None when it is gone."""
    try:
        # The second field is the program's name in brackets and may hold blanks and brackets of its own.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return None if fields[0] in "ZX" else fields[19]
    except (OSError, IndexError):
        return None if Path("/proc/self/stat").exists() else _signalled(pid)


def _signalled(pid: int) -> str | None:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:
        pass
    return ""


def is_alive(row: LeaseRow, now: datetime) -> bool:
    """Whether the lease's holder still runs, as far as can be known from here."""
    here = Process.current()
    fresh = now - row.heartbeat_at < STALE
    if row.host != here.host:
        return fresh
    if row.boot_id and here.boot_id and row.boot_id != here.boot_id:
        return False
    if row.namespace != here.namespace:
        return fresh  # another container of this host: its process numbers mean nothing here
    started = start_of(row.pid)
    return started is not None and (not started or not row.pid_started or started == row.pid_started)


class Lease:
    """A held lease. The holder calls `beat` at least every minute, so that other hosts see it alive."""

    def __init__(self, database: Database, name: str, holder: Process) -> None:
        self._database = database
        self._name = name
        self._holder = holder

    def beat(self) -> None:
        """Says "still alive". Raises StoreError when another driver has the lease: it took this one for dead."""
        with self._database.writing() as session:
            row = session.get(LeaseRow, self._name)
            if row is None or not self._owns(row):
                raise StoreError(f"{_lost(row)}: stop this driver")
            row.heartbeat_at = datetime.now(UTC)

    def _owns(self, row: LeaseRow) -> bool:
        return (row.host, row.pid, row.pid_started) == (self._holder.host, self._holder.pid, self._holder.pid_started)

    def _release(self) -> None:
        if os.getpid() != self._holder.pid:
            return  # a forked child that unwinds: the lease is its parent's
        with self._database.writing() as session:
            row = session.get(LeaseRow, self._name)
            if row is not None and self._owns(row):
                session.delete(row)


def _lost(row: LeaseRow | None) -> str:
    return "the lease is gone" if row is None else f"the lease was taken over by process {row.pid} on {row.host}"


@contextmanager
def hold(database: Database, name: str) -> Iterator[Lease]:
    """Holds the lease while the block runs. Raises StoreError naming the living driver that has it."""
    holder = Process.current()
    with database.writing() as session:
        _take(session, database, name, holder)
    lease = Lease(database, name, holder)
    try:
        yield lease
    finally:
        lease._release()


def _take(session: Session, database: Database, name: str, holder: Process) -> None:
    if not database.is_sqlite:
        # SQLite's write transactions exclude each other; elsewhere two could both find no row.
        session.execute(text(f"LOCK TABLE {LeaseRow.__tablename__} IN EXCLUSIVE MODE"))
    now = datetime.now(UTC)
    row = session.get(LeaseRow, name)
    if row is not None and is_alive(row, now):
        raise StoreError(
            f"{database.label} is being driven by process {row.pid} on {row.host}"
            f" since {row.started_at:%Y-%m-%d %H:%M:%S} UTC: wait for it, stop it, or use another store"
        )
    session.merge(LeaseRow(name=name, started_at=now, heartbeat_at=now, **holder.model_dump()))
