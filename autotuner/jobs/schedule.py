"""Sweeps that come every day at a time: whoever ends one asks for the next, so that no service but workers is there."""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta

from autotuner.store import Store, queries, sweeps
from autotuner.store.records import SweepRecord
from autotuner.values.errors import InputError
from autotuner.values.sweep import Daily, State

OPEN = (State.QUEUED, State.RUNNING, State.PAUSED)


def times(at: str, after: datetime) -> Iterator[datetime]:
    """The moments of that time of day after another one, in its time zone. Raises InputError."""
    if re.fullmatch(r"([01]?\d|2[0-3]):[0-5]\d", at) is None:
        raise InputError(f"--every {at!r}: expected a time of day, such as 02:00")
    hour, minute = map(int, at.split(":"))
    next_one = after.replace(hour=hour, minute=minute, second=0, microsecond=0)
    days = 0 if next_one > after else 1
    while True:
        yield next_one + timedelta(days=days)
        days += 1


def daily(at: str, trials: int) -> Daily:
    """Every day at that time by this machine's clock, as many trials. Raises InputError."""
    return Daily(at=at, trials=trials, due=next(times(at, datetime.now().astimezone())))


def ask_again(store: Store, ended: SweepRecord) -> SweepRecord | None:
    """Asks for the next of the sweeps that come every day, once one is over; that one. The times that have passed
    meanwhile are an event of it. None where it was cancelled, comes once, or the next one is there already."""
    every = ended.request.every
    if every is None or ended.state not in (State.DONE, State.FAILED):
        return None
    if any(each.name == ended.name and each.request.every is not None for each in sweeps.every(store, OPEN)):
        return None
    now, missed = queries.now(store).astimezone(), []
    for due in times(every.at, every.due.astimezone()):
        if due > now:
            break
        missed.append(due)
    judged = 0 if ended.found is None else ended.found.judged
    more = {"every": every.model_copy(update={"due": due}), "trials": judged + every.trials}
    (made,), _ = sweeps.add(store, [ended.request.model_copy(update=more)], ended.priority)
    if missed:
        said = f"{len(missed)} missed since {every.due.astimezone():%Y-%m-%d %H:%M}: no worker was free"
        sweeps.note(store, made.id, "missed", said, {"count": len(missed)})
    return made
