"""The queue: sweeps as jobs in the store. Each function is one transaction, its event included.

Like `queries` they take an open store. They hold and find; what is decided is decided in the room `jobs`.
"""

import secrets
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, timedelta
from typing import NamedTuple

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session

from autotuner.store import lease
from autotuner.store.database import reads, writes
from autotuner.store.lease import Lease
from autotuner.store.records import EventRecord, Holder, SweepRecord
from autotuner.store.store import Store
from autotuner.store.tables import Data, EventRow, LeaseRow, SweepRow
from autotuner.values.errors import StoreError
from autotuner.values.sweep import MOST, Found, State, SweepChange, SweepRequest, Wish

WISHED = {Wish.PAUSE: State.PAUSED, Wish.CANCEL: State.CANCELLED}
"""What becomes of a sweep that nobody works on."""


class Claim(NamedTuple):
    """A sweep that this process works on from here on."""

    sweep: SweepRecord
    lease: Lease


# Asking ---------------------------------------------------------------------------------------------------------------


@reads
def every(
    store: Store, session: Session, states: Collection[State] = tuple(State), over: int | None = None
) -> tuple[SweepRecord, ...]:
    """The sweeps in these states: those that are open in the order in which they are due, then the others, the last to
    end first; of these the first `over`, or all."""
    ended = _in([each for each in states if each.is_over]).order_by(SweepRow.finished_at.desc(), SweepRow.id.desc())
    open_ones = session.scalars(_in([each for each in states if not each.is_over])).all()
    records = _records(session, [*open_ones, *session.scalars(ended.limit(over))])
    order = {State.RUNNING: 0, State.QUEUED: 1, State.PAUSED: 2}
    waiting = (each for each in records if not each.state.is_over)
    due = sorted(waiting, key=lambda each: (order[each.state], *_turn(each)))
    return (*due, *(each for each in records if each.state.is_over))


def _in(states: Collection[State]) -> Select[SweepRow]:
    return select(SweepRow).where(SweepRow.state.in_([str(each) for each in states]))


@reads
def counts(store: Store, session: Session) -> tuple[dict[str, int], dict[str, int]]:
    """How many sweeps are in each state, and how many events of each kind there ever were, of all sweeps and devices;
    states and kinds without any are left out."""
    queries = (select(each, func.count()).group_by(each).order_by(each) for each in (SweepRow.state, EventRow.kind))
    states, kinds = ({row[0]: row[1] for row in session.execute(query)} for query in queries)
    return states, kinds


def due(store: Store) -> tuple[SweepRecord, ...]:
    """What a worker may take now, in this order: queued sweeps whose time has come, and running ones whose worker has
    gone. Of a group those go first that have not begun."""
    at = store.database.read(store.database.now)
    found = every(store, (State.QUEUED, State.RUNNING))
    free = (each for each in found if each.holder is None and (each.not_before is None or each.not_before <= at))
    return tuple(sorted(free, key=_turn))


@reads
def group(store: Store, session: Session, number: int) -> tuple[SweepRecord, ...]:
    """The sweeps of the group that begins with that one, the oldest first."""
    return _records(session, session.scalars(_group(number)))


def _group(number: int) -> Select[SweepRow]:
    return select(SweepRow).where(SweepRow.group_id == number).order_by(SweepRow.id)


@reads
def exists(store: Store, session: Session, number: int) -> bool:
    """Whether there is a sweep of that number."""
    return session.scalar(select(SweepRow.id).where(SweepRow.id == number)) is not None


@reads
def one(store: Store, session: Session, number: int) -> SweepRecord:
    """A sweep. Raises StoreError: no such sweep."""
    return _records(session, [_row(session, store, number)])[0]


def no_such(store: Store, number: int | str) -> StoreError:
    """What is said of a number that no sweep has."""
    return StoreError(f"{store.label} has no sweep {number}: `autotuner sweep list --all` lists them")


@reads
def latest(store: Store, session: Session, wanted: str | None = None) -> SweepRecord | None:
    """The sweep of that key, else the last one of that name; of all the last one where nothing is said."""
    query = select(SweepRow).order_by(SweepRow.id.desc()).limit(1)
    mine = [query] if wanted is None else [query.where(each == wanted) for each in (SweepRow.key, SweepRow.name)]
    row = next(filter(None, map(session.scalar, mine)), None)
    return None if row is None else _records(session, [row])[0]


@reads
def events(
    store: Store, session: Session, sweep: int | Collection[int] | None = None, after: int = 0, last: int | None = None
) -> tuple[EventRecord, ...]:
    """What happened, the oldest first: to one sweep, to some or to all, after an event's number; of these the `last`
    ones where that is given."""
    query = select(EventRow).where(EventRow.id > after)
    if sweep is not None:
        query = query.where(EventRow.sweep_id.in_([sweep] if isinstance(sweep, int) else sweep))
    query = query.order_by(EventRow.id) if last is None else query.order_by(EventRow.id.desc()).limit(last)
    found = [EventRecord.taken_from(row, sweep=row.sweep_id) for row in session.scalars(query)]
    return tuple(found if last is None else reversed(found))


# Changing -------------------------------------------------------------------------------------------------------------


@writes
def add(
    store: Store,
    session: Session,
    requests: Sequence[SweepRequest],
    priority: int = 0,
    key: str | None = None,
    foreground: bool = False,
) -> tuple[tuple[SweepRecord, ...], bool]:
    """Asks for a sweep, or for several that are a group; they, and whether they are new. Under a key that was used
    before those of then are returned.

    Raises StoreError where the key stands for sweeps that ask for something else.
    """
    if key is not None:
        lease.lock(session, store.database)  # two that use one key at once would both find nothing
    row = session.scalar(select(SweepRow).where(SweepRow.key == key)) if key is not None else None
    if row is not None:
        same = [row] if row.group_id is None else session.scalars(_group(row.group_id))
        found = _records(session, same)
        if [each.request for each in found] != list(requests):
            asked = f"the key {key!r} stands for sweep {row.id}, which asks for something else"
            raise StoreError(f"{asked}: use another key")
        return found, False
    now = store.database.now(session)
    rows = [
        SweepRow(
            name=request.name,
            priority=priority,
            backend=request.backend,
            request=request,
            foreground=foreground,
            submitted_at=now,
            not_before=None if request.every is None else request.every.due.astimezone(UTC),
        )
        for request in requests
    ]
    rows[0].key = key
    for row in rows:
        session.add(row)
        session.flush()
        row.group_id = rows[0].id if len(rows) > 1 else None
        _note(session, store, row.id, "submitted", f"submitted: {row.name}", {"priority": priority})
    session.flush()
    return tuple(_record(row, None) for row in rows), True


def claim(store: Store, number: int, doing: str) -> Claim | None:
    """Takes a sweep that is due for this process: a queued one, or a running one whose worker has gone. None where
    somebody else was faster, or it is not due any more."""
    return _claim(store, number, doing, secrets.token_hex(16))


@writes
def _claim(store: Store, session: Session, number: int, doing: str, token: str) -> Claim | None:
    lease.lock(session, store.database)
    row = session.get(SweepRow, number)
    if row is None or row.state not in (State.QUEUED, State.RUNNING):
        return None
    holder = lease.holders(session, [lease.of("sweep", number)]).get(lease.of("sweep", number))
    if holder is not None and holder.token != token:
        return None
    now = store.database.now(session)
    if row.wish is not None:  # of a worker that died before it heard of it
        row.state, row.wish, row.detail = str(WISHED[Wish(row.wish)]), None, "by a user"
        row.finished_at = now if State(row.state).is_over else None
        _note(session, store, number, row.state, row.state, {})
        return None
    again = row.state == State.RUNNING and holder is None
    held = lease.take(session, store.database, lease.of("sweep", number), doing, token)
    row.state, row.detail, row.not_before = str(State.RUNNING), "", None
    row.started_at = row.started_at or now
    text = f"taken over by {doing}: its worker had gone" if again else f"begun by {doing}"
    _note(session, store, number, "begun", text, {"again": again})
    session.flush()
    return Claim(_record(row, None), held)


@writes
def settle(
    store: Store,
    session: Session,
    number: int,
    wanted: State,
    detail: str = "",
    *,
    spent_s: float | None = None,
    found: Found | None = None,
    attempts: int = 0,
    wait_s: float = 0.0,
    kind: str | None = None,
) -> SweepRecord:
    """Ends this process's work on a sweep, or moves one that nobody works on; what it is then. One that is handed back
    or paused becomes what is wished of it now: a pause may be withdrawn, or become a cancellation, after it was heard.
    `found`: what it has found until now. `wait_s`: no worker takes it sooner. `kind`: of the event, the state's name
    unless given. Raises StoreError: no such sweep."""
    store.database.guard(session.connection())
    row = _row(session, store, number)
    if wanted == row.state == State.PAUSED:  # by an attempt whose connection was lost
        return _record(row, None)
    now, state = store.database.now(session), wanted
    if wanted in (State.QUEUED, State.PAUSED):  # what is wished now counts, whatever was heard before
        state = State.QUEUED if row.wish is None else WISHED[Wish(row.wish)]
    if (wanted, state) == (State.PAUSED, State.QUEUED):
        row.foreground = False  # as after any `resume`: its command ends
    row.state, row.wish, row.detail, row.attempts = str(state), None, detail, attempts
    row.spent_s = row.spent_s if spent_s is None else spent_s
    row.found = found or row.found
    row.finished_at = now if state.is_over else None
    row.not_before = now + timedelta(seconds=wait_s) if wait_s else None
    text = f"{state}: {detail}" if detail else str(state)
    _note(session, store, number, kind or str(state), text, {"spent_s": row.spent_s})
    session.flush()
    return _record(row, None)


@writes
def wish(store: Store, session: Session, number: int, wanted: Wish) -> SweepRecord:
    """Asks for a pause or a cancellation. A sweep that nobody works on is paused or cancelled at once, another one when
    its worker hears of it. Raises StoreError where the sweep is over."""
    lease.lock(session, store.database)
    row = _row(session, store, number)
    state = State(row.state)
    if state.is_over:
        raise StoreError(f"sweep {number} is {state}: there is nothing to {wanted}")
    held = lease.holders(session, [lease.of("sweep", number)]).get(lease.of("sweep", number))
    if held is not None:
        row.wish = str(wanted)
    else:
        row.state = str(WISHED[wanted])
        row.wish, row.detail = None, "by a user"
        row.finished_at = store.database.now(session) if wanted == Wish.CANCEL else None
    _note(session, store, number, f"{wanted}_asked", f"{wanted} asked for", {})
    session.flush()
    return _record(row, held)


@writes
def change(store: Store, session: Session, number: int, wanted: SweepChange) -> SweepRecord:
    """Gives a sweep another budget or priority; who works on it hears of it. Raises StoreError where it is over."""
    row = _row(session, store, number)
    if State(row.state).is_over:
        raise StoreError(f"sweep {number} is {row.state}: `autotuner sweep retry` takes --trials and --minutes, too")
    _change(session, store, row, wanted)
    session.flush()
    return _records(session, [row])[0]


def _change(session: Session, store: Store, row: SweepRow, wanted: SweepChange) -> None:
    said = wanted.model_dump(exclude_none=True)
    if said:
        row.request = row.request.changed(wanted)
        row.priority = row.priority if wanted.priority is None else wanted.priority
        text = ", ".join(f"{name} {value}" for name, value in said.items())
        _note(session, store, row.id, "changed", f"changed: {text}", said)


@writes
def queue_again(
    store: Store,
    session: Session,
    number: int,
    kind: str,
    wanted: SweepChange = SweepChange(),  # noqa: B008, as it is frozen
    detail: str = "",
) -> SweepRecord:
    """Puts a sweep back into the queue: a paused one (`resumed`), or one that is over (`retried`). It goes on where it
    was, with the budget it has left, or the one that is wanted. A pause that its worker is about to take is withdrawn,
    a cancellation is not. Raises StoreError where it is neither."""
    row = _row(session, store, number)
    state = State(row.state)
    if row.wish == Wish.PAUSE and state == State.RUNNING and kind == "resumed":
        row.wish = None
    elif (kind == "resumed") != (state == State.PAUSED) or state in (State.QUEUED, State.RUNNING):
        remedy = "cancel it, or wait for its end"
        if kind == "resumed":
            remedy = "pause it first" if row.wish is None else "it is to be cancelled; retry it then"
        raise StoreError(f"sweep {number} is {state} and cannot be {kind}: {remedy}")
    else:
        row.state, row.detail, row.finished_at, row.attempts = str(State.QUEUED), detail, None, 0
        row.foreground, row.not_before = False, None
        _change(session, store, row, wanted)
    _note(session, store, number, kind, kind, {})
    session.flush()
    return _record(row, None)


@writes
def work(
    store: Store, session: Session, number: int, spent_s: float, study: str | None, found: Found | None = None
) -> SweepRecord:
    """Notes how long a sweep was worked on over all runs, in which study and what it has found there; the sweep, with
    what somebody wishes of it now."""
    store.database.guard(session.connection())
    row = _row(session, store, number)
    row.spent_s, row.study = spent_s, study
    row.found = found or row.found
    return _record(row, None)


@writes
def note(store: Store, session: Session, sweep: int | None, kind: str, text: str, data: Data | None = None) -> None:
    """Adds an event."""
    _note(session, store, sweep, kind, text, data or {})


# Between rows and records ---------------------------------------------------------------------------------------------


def _note(session: Session, store: Store, sweep: int | None, kind: str, text: str, data: Data) -> None:
    session.add(EventRow(at=store.database.now(session), sweep_id=sweep, kind=kind, text=text, data=data))


def _row(session: Session, store: Store, number: int) -> SweepRow:
    row = session.get(SweepRow, number) if number <= MOST else None  # a larger one is an error to the database
    if row is None:
        raise no_such(store, number)
    return row


def _records(session: Session, rows: Iterable[SweepRow]) -> tuple[SweepRecord, ...]:
    found = list(rows)
    held = lease.holders(session, [lease.of("sweep", row.id) for row in found])
    return tuple(_record(row, held.get(lease.of("sweep", row.id))) for row in found)


def _turn(record: SweepRecord) -> tuple[int, int, bool, int]:
    """By which sweeps are due: priority, then age. A group is as old as its first sweep; of its sweeps those go first
    that have not begun."""
    has_begun = record.group is not None and record.started_at is not None
    return -record.priority, record.group or record.id, has_begun, record.id


def holder(row: LeaseRow | None) -> Holder | None:
    """The process that a lease names."""
    return None if row is None else Holder.taken_from(row, since=row.started_at, seen=row.heartbeat_at)


def _record(row: SweepRow, held: LeaseRow | None) -> SweepRecord:
    return SweepRecord.taken_from(row, group=row.group_id, holder=holder(held))
