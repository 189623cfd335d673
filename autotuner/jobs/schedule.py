"""Sweeps that come every day at a time: whoever ends one asks for the next, so that no service but workers is there."""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta

from autotuner.store import Store, queries, sweeps
from autotuner.store.records import SweepRecord
from autotuner.tuning.again import best_now
from autotuner.values.errors import InputError, StoreError
from autotuner.values.sweep import Daily, State, SweepRequest


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


def daily(at: str, trials: int, regress: bool = False) -> Daily:
    """Every day at that time by this machine's clock, as many trials. Raises InputError."""
    return Daily(at=at, trials=trials, due=next(times(at, datetime.now().astimezone())), regress=regress)


def ask_again(store: Store, ended: SweepRecord) -> SweepRecord | None:
    """Asks for the next of the sweeps that come every day, once one is over, or all of its group are; the first of
    them. The times that have passed meanwhile are an event of it. None where one was cancelled, it comes once, or the
    next one is there already."""
    every = ended.request.every
    over = (ended,) if ended.group is None else sweeps.group(store, ended.group)
    if every is None or not all(each.state in (State.DONE, State.FAILED) for each in over):
        return None
    ahead = (each.request.every for each in sweeps.every(store, over=0) if each.name == ended.name)
    if any(each is not None and each.at == every.at for each in ahead):
        return None
    now, missed = queries.now(store).astimezone(), []
    for due in times(every.at, every.due.astimezone()):
        if due > now:
            break
        missed.append(due)
    requests = [_next_request(store, each, due) for each in over]
    try:  # under a key: of two workers that end the last two of a group at once, one asks
        made, is_new = sweeps.add(store, requests, ended.priority, f"{ended.name}, {due:%Y-%m-%d %H:%M}")
    except StoreError:
        return None
    if missed and is_new:
        said = f"{len(missed)} missed since {every.due.astimezone():%Y-%m-%d %H:%M}: no worker was free"
        sweeps.note(store, made[0].id, "missed", said, {"count": len(missed)})
    return made[0]


def go_on(store: Store) -> None:
    """Asks for the next ones where a worker was killed before it could."""
    latest = {(each.name, each.request.every.at): each for each in sweeps.every(store) if each.request.every}
    for each in latest.values():
        ask_again(store, each)


def _next_request(store: Store, ended: SweepRecord, due: datetime) -> SweepRequest:
    every = ended.request.every
    assert every is not None
    last = every.last
    if every.regress and ended.study is not None and not ended.detail:  # a night that says something is no yardstick
        last = best_now(store, ended.study) or last
    judged = 0 if ended.found is None else ended.found.judged
    more = {"every": every.model_copy(update={"due": due, "last": last}), "trials": judged + every.trials}
    return ended.request.model_copy(update=more)
