"""Leases: a study, a sweep and a device each have one holder at a time. A dead holder's lease is taken over, a living
one's is refused. Time is the database's, so that hosts whose clocks differ agree."""

import contextlib
import os
import secrets
import socket
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal, Self

from sqlalchemy import Connection, delete, select, text, update
from sqlalchemy.orm import Session

from autotuner.store.database import Database
from autotuner.store.tables import LeaseRow
from autotuner.values.errors import DiskFullError, LeaseHeldError, LeaseLostError, StoreUnavailableError
from autotuner.values.model import Model
from autotuner.values.variant import digest_of

STALE = timedelta(seconds=120)
"""A holder that cannot be looked at (it runs on another host), or that is stopped, counts as dead when silent for so
long."""
MACHINE_ID = "/etc/machine-id"
"""The system's file that tells this installation from all others, whatever the host's name. A container has none."""


def of(what: Literal["study", "sweep", "device"], name: str | int) -> str:
    """The lease of who drives a study, works on a sweep or serves a device."""
    return f"{what}/{name}"


class HoldingProcess(Model):
    """A process, told apart from a later one with the same number. A field is empty where the system does not say."""

    host: str
    machine: str
    boot_id: str
    namespace: str
    pid: int
    pid_started: str

    @classmethod
    def current(cls) -> Self:
        """Who is running this."""
        return cls(
            host=socket.gethostname(),
            machine=_machine(),
            boot_id=_said(Path("/proc/sys/kernel/random/boot_id").read_text),
            namespace=_said(Path("/proc/self/ns/pid").readlink),
            pid=os.getpid(),
            pid_started=start_of(os.getpid()) or "",
        )


def _machine() -> str:
    """A digest of the machine's id, which is not for others to read."""
    found = _said(Path(MACHINE_ID).read_text)
    return digest_of(["autotuner", found])[:32] if found not in ("", "uninitialized") else ""


def _said(ask: Callable[[], object]) -> str:
    """What the system answers; "" where it does not."""
    try:
        return str(ask()).strip()
    except OSError:
        return ""


def _fields(pid: int) -> list[str] | None:
    """What the system says of a process after its name; None where there is no such process."""
    try:
        # The second field is the program's name in brackets and may hold blanks and brackets of its own.
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None


def start_of(pid: int) -> str | None:
    """When the process started, in clock ticks since boot; None when it is gone."""
    fields = _fields(pid)
    return None if fields is None or len(fields) < 20 or fields[0] in "ZX" else fields[19]


def is_alive(row: LeaseRow, now: datetime) -> bool:
    """Whether the lease's holder still runs, as far as can be known from here. `now` is the database's."""
    here = HoldingProcess.current()
    fresh = now - row.heartbeat_at < STALE
    if row.host != here.host:
        return fresh
    if row.boot_id and here.boot_id and row.boot_id != here.boot_id:
        was_booted_since = row.machine != "" and row.machine == here.machine
        return fresh and not was_booted_since  # else another machine may have this one's name
    if row.namespace != here.namespace:
        return fresh  # another container of this host: its process numbers mean nothing here
    started = start_of(row.pid)
    if started is None or (row.pid_started and started != row.pid_started):
        return False
    fields = _fields(row.pid)
    return fresh or not fields or fields[0] not in "Tt"  # stopped by a signal, or by a debugger


def holders(session: Session, names: list[str] | None = None, prefix: str = "") -> dict[str, LeaseRow]:
    """The leases with a living holder, by name: those of these names, or all that begin so."""
    query = select(LeaseRow)
    if names is not None:
        query = query.where(LeaseRow.name.in_(names))
    now = Database.now(session)
    return {row.name: row for row in session.scalars(query) if row.name.startswith(prefix) and is_alive(row, now)}


class Lease:
    """A held lease. The holder calls `beat` at least every minute, so that other hosts see it alive."""

    def __init__(self, database: Database, name: str, holder: HoldingProcess, token: str) -> None:
        self.database, self.name, self._holder, self.token = database, name, holder, token
        database.fences[token] = name

    @staticmethod
    def process() -> str:
        """This process, for a person."""
        return f"{os.getpid()} on {socket.gethostname()}"

    def beat(self, doing: str | None = None) -> None:
        """Says "still alive", and what it does now. Raises LeaseLostError when another process has the lease: it took
        this one for dead."""

        def renew(connection: Connection) -> None:
            renewal = update(LeaseRow).where(LeaseRow.token == self.token)
            renewal = renewal.values(heartbeat_at=Database.now(connection))
            connection.execute(renewal if doing is None else renewal.values(doing=doing))

        self.database.write_plainly(renew)

    def close(self) -> None:
        """Gives it back, if it is this process's still. Where the store cannot be reached others see who is gone."""
        if os.getpid() != self._holder.pid:
            return  # a forked child that unwinds: the lease is its parent's
        self.database.fences.pop(self.token, None)
        with contextlib.suppress(StoreUnavailableError, DiskFullError):
            self.database.write(lambda session: session.execute(delete(LeaseRow).where(LeaseRow.token == self.token)))


def require(connection: Connection, database: Database) -> None:
    """Raises LeaseLostError where another process has what this one holds. A write in the same transaction is fenced:
    who was stopped for long, and runs again, writes nothing more."""
    query = select(LeaseRow.token).where(LeaseRow.token.in_(database.fences))
    if not database.is_sqlite:
        query = query.with_for_update(read=True)  # nobody takes it over before this transaction ends
    there = set(connection.scalars(query))
    for token, name in database.fences.items():
        if token not in there:
            row = connection.execute(select(LeaseRow.pid, LeaseRow.host).where(LeaseRow.name == name)).first()
            by = "is gone" if row is None else f"was taken over by process {row.pid} on {row.host}"
            raise LeaseLostError(f"the lease of {name} {by}: stop this driver")


def hold(database: Database, name: str, doing: str = "") -> AbstractContextManager[Lease]:
    """Takes the lease, for a block that holds it. Raises LeaseHeldError naming the living process that has it."""
    token = secrets.token_hex(16)
    return closing(database.write(lambda session: take(session, database, name, doing, token)))


def lock(session: Session, database: Database) -> None:
    """Nobody else takes a lease before this transaction ends. SQLite's write transactions exclude each other; elsewhere
    two could both find no row."""
    if not database.is_sqlite:
        session.execute(text(f"LOCK TABLE {LeaseRow.__tablename__} IN EXCLUSIVE MODE"))


def take(session: Session, database: Database, name: str, doing: str, token: str) -> Lease:
    """Takes the lease in a transaction of the caller's, who makes the token: he may have taken it before, and lost his
    connection. Raises LeaseHeldError naming the living process that has it."""
    holder = HoldingProcess.current()
    lock(session, database)
    now = Database.now(session)
    row = session.get(LeaseRow, name)
    if row is not None and row.token != token and is_alive(row, now):
        raise LeaseHeldError(
            f"{name.partition('/')[2] or name} in {database.label} is being driven by process {row.pid} on {row.host}"
            f" since {row.started_at:%Y-%m-%d %H:%M:%S} UTC: wait for it, stop it, or use another store"
        )
    values = {"token": token, "started_at": now, "heartbeat_at": now, "doing": doing, **holder.model_dump()}
    session.merge(LeaseRow(name=name, **values))
    session.flush()
    return Lease(database, name, holder, token)
