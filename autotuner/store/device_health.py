"""The devices that workers serve: who has each, and which are in quarantine."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from sqlalchemy import select
from sqlalchemy.orm import Session

from autotuner.store import lease
from autotuner.store.database import reads, writes
from autotuner.store.lease import Lease
from autotuner.store.records import DeviceRecord
from autotuner.store.store import Store
from autotuner.store.sweeps import holder
from autotuner.store.tables import DeviceRow, EventRow
from autotuner.values.errors import StoreError
from autotuner.values.validation import no_such


@reads
def every(store: Store, session: Session) -> tuple[DeviceRecord, ...]:
    """All devices that were ever served, by name."""
    held = lease.holders(session, prefix=lease.of("device", ""))
    found = session.scalars(select(DeviceRow).order_by(DeviceRow.name))
    return tuple(DeviceRecord.taken_from(row, holder=holder(held.get(lease.of("device", row.name)))) for row in found)


def quarantined(store: Store, names: Sequence[str]) -> DeviceRecord | None:
    """The first of these devices that is in quarantine."""
    return next((each for each in every(store) if each.name in names and each.health == "quarantined"), None)


@contextmanager
def serving(
    store: Store, words: Mapping[str, Sequence[str]], host: str, backend: str, model: str, doing: str
) -> Iterator[list[Lease]]:
    """Serves devices while the block runs. `words`: what `--devices` calls each device, by its name.

    Raises StoreError naming the living process that serves one already.
    """
    with ExitStack() as stack:
        leases = [stack.enter_context(lease.hold(store.database, lease.of("device", name), doing)) for name in words]
        _note_served(store, words, host, backend, model)
        yield leases


@writes
def _note_served(
    store: Store, session: Session, words: Mapping[str, Sequence[str]], host: str, backend: str, model: str
) -> None:
    now = store.database.now(session)
    for name, called in words.items():
        row = session.get(DeviceRow, name)
        if row is None:
            row = DeviceRow(name=name, health="healthy", reason="", remedy="", changed_at=now)
            session.add(row)
        row.host, row.backend, row.model, row.seen_at = host, backend, model, now
        row.words = tuple(called)


def quarantine(store: Store, names: Sequence[str], reason: str, remedy: str, sweep: int | None) -> None:
    """Gives no more sweeps to these devices until somebody clears them."""
    _change(store, names, "quarantined", reason, remedy, sweep)


def clear(store: Store, names: Sequence[str]) -> tuple[str, ...]:
    """Ends the quarantine of devices; which of them were in one. Raises StoreError: no such device."""
    known = {each.name: each for each in every(store)}
    for name in names:
        if name not in known:
            raise StoreError(f"{store.label}: {no_such('device', name, known)}")
    found = tuple(name for name in names if known[name].health == "quarantined")
    _change(store, found, "healthy", "", "", None)
    return found


@writes
def _change(
    store: Store, session: Session, names: Sequence[str], health: str, reason: str, remedy: str, sweep: int | None
) -> None:
    kind = "quarantined" if health == "quarantined" else "cleared"
    now = store.database.now(session)
    for name in names:
        row = session.get_one(DeviceRow, name)
        row.health, row.reason, row.remedy, row.changed_at = health, reason, remedy, now
        text = f"{name} {kind}" + (f": {reason}; {remedy}" if reason else "")
        session.add(EventRow(at=now, sweep_id=sweep, device=name, kind=kind, text=text, data={}))
