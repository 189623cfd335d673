"""Where each sweep is: what it has found, its place in the queue, why it waits, and what happens to it. Which sweeps a
worker takes is one rule, for workers and for those who say how long a sweep waits."""

import time
from collections.abc import Collection, Iterator, Sequence
from functools import cache, partial
from typing import NamedTuple

from pydantic import Field

from autotuner.devices import DEVICES
from autotuner.store import Store, device_health, queries, sweeps
from autotuner.store.records import DeviceRecord, EventRecord, Holder, SweepRecord
from autotuner.tuning.finals import standings
from autotuner.values.errors import InputError, StoreError, StoreUnavailableError
from autotuner.values.sweep import Found, State, SweepRequest

POLL_S = 0.5
"""Seconds between two looks at the store."""
RESTING = (State.DONE, State.CANCELLED, State.FAILED, State.PAUSED)
"""States in which nothing more comes by itself."""


class Outlook(Found):
    """A sweep, what it has found, and what can be said of it now. Of one that is over it is what it had found then,
    whatever its study shows today."""

    sweep: SweepRecord
    place: int | None = Field(description="among those that wait for the same workers, 1 the next; null: it waits not")
    waits: str | None = Field(description="why it does not run")
    left_s: float | None = Field(description="seconds of work left, estimated; null where nobody can tell")


def found_in(store: Store, study: str | None) -> Found:
    """What a study has now; nothing where it was not made yet. Raises StoreUnavailableError."""
    try:
        if study is None:
            return Found()
        best, judged = standings.quoted(store, study), queries.judged_count(store, study)
    except StoreUnavailableError:
        raise
    except StoreError:  # begun, and killed before the study was made
        return Found()
    if best is None:
        return Found(judged=judged)
    return Found(judged=judged, best_speedup=best[0], best_confirmed=best[1])


def group_state(found: Sequence[Outlook]) -> State:
    """Where sweeps of a group are together. They are done once each is done and has a result; a group that is over
    without is failed, or cancelled."""
    states = {each.sweep.state for each in found}
    open_one = next((each for each in (State.RUNNING, State.QUEUED, State.PAUSED) if each in states), None)
    if open_one is not None:
        return open_one
    if states == {State.DONE} and all(each.best_speedup is not None for each in found):
        return State.DONE
    return State.CANCELLED if State.CANCELLED in states and State.FAILED not in states else State.FAILED


def outlooks(store: Store, over: int | None = 0) -> tuple[Outlook, ...]:
    """The sweeps that are not over, in the order in which they are due, and of the others the last `over`, or all."""
    found = sweeps.every(store, over=over)
    return tuple(map(_Outlooks(store, found).of, found))


def outlook(store: Store, number: int) -> Outlook:
    """One sweep. Raises StoreError: no such sweep."""
    queue = sweeps.every(store, over=0)
    found = next((each for each in queue if each.id == number), None)
    if found is None:
        found = sweeps.one(store, number)
        queue = (found,)
    return _Outlooks(store, queue).of(found)


class _Outlooks:
    """One look at the queue. Of a sweep no more is read than is asked for."""

    def __init__(self, store: Store, found: Sequence[SweepRecord]) -> None:
        self._found = cache(partial(found_in, store))
        self._now = queries.now(store)
        self._workers = living(device_health.every(store))
        waiting = [each for each in found if _waits(each)]
        self._takers = {
            each.id: [at for at, worker in enumerate(self._workers) if worker.fits(each.request)] for each in waiting
        }
        """The workers that serve what a sweep asks for, by their places."""
        self._places = {
            each.id: 1 + sum(self._are_rivals(each, other) for other in waiting[:ahead])
            for ahead, each in enumerate(waiting)
        }
        """Of each sweep that waits its place in the queue."""
        self._busy: set[int] = set()
        """The workers that work on a sweep, by their places, or beside a command which has a device that they serve."""
        for each in found:
            if each.state == State.RUNNING and each.holder is not None:
                workers = list(enumerate(self._workers))
                own = [
                    at
                    for at, one in workers
                    if (one.holder.host, one.holder.pid) == (each.holder.host, each.holder.pid)
                ]
                able = [at for at, one in workers if one.holder.host == each.holder.host and one.fits(each.request)]
                self._busy.update((own or [at for at in able if at not in self._busy])[:1])

    def of(self, each: SweepRecord) -> Outlook:
        """Of one of the sweeps."""
        found = each.found or Found() if each.state.is_over else self._found(each.study)
        place, left_s = self._places.get(each.id), None if each.state.is_over else _left_s(each, found.judged)
        return Outlook(**dict(found), sweep=each, place=place, waits=self._why(each, place), left_s=left_s)

    def _are_rivals(self, one: SweepRecord, other: SweepRecord) -> bool:
        """Whether they wait for a worker in common; or, where nobody serves either, for the same kind of device."""
        first, second = self._takers[one.id], self._takers[other.id]
        if first or second:
            return not {*first}.isdisjoint(second)
        return one.request.backend == other.request.backend

    def _why(self, each: SweepRecord, place: int | None) -> str | None:
        if each.state == State.PAUSED:
            return "paused: `autotuner sweep resume` goes on"
        if place is None:
            return None
        if each.not_before is not None and each.not_before > self._now:
            if each.request.every is not None and not each.detail:
                return f"due at {each.not_before:%Y-%m-%d %H:%M} UTC, then every day"
            return f"{each.detail}; tried again at {each.not_before:%H:%M:%S} UTC"
        return self._why_it_waits(each, place)

    def _why_it_waits(self, each: SweepRecord, place: int) -> str:
        takers = self._takers[each.id]
        if not takers:
            backend, named = each.request.backend, each.request.devices
            if named is None or all(worker.backend != backend for worker in self._workers):
                return f"no worker serves a device of kind {backend}: start `autotuner worker`"
            return f"no worker serves {named}: start `autotuner worker --devices {named}`"
        sick = [device for at in takers if (device := self._workers[at].sick) is not None]
        if len(sick) == len(takers):
            return f"{sick[0].name} is in quarantine: {sick[0].reason}"
        if each.state == State.RUNNING:
            return "its worker has gone: the next free one takes it over"
        busy = sum(at in self._busy for at in takers)
        if place <= len(takers) - len(sick) - busy:
            return "a worker is about to take it"
        ahead = place - 1 + busy
        return f"behind {ahead} other{'s' if ahead > 1 else ''}"


def _left_s(each: SweepRecord, judged: int) -> float | None:
    """By its trials at its own pace, and no more than its minutes allow."""
    by_trials = max(0, each.request.trials - judged) * each.spent_s / judged if judged and each.spent_s else None
    if each.request.minutes is None:
        return by_trials
    by_minutes = max(0.0, 60 * each.request.minutes - each.spent_s)
    return by_minutes if by_trials is None else min(by_trials, by_minutes)


def _waits(each: SweepRecord) -> bool:
    """Queued, or left by a worker that has gone."""
    lost = each.state == State.RUNNING and each.holder is None
    return (each.state == State.QUEUED or lost) and not each.foreground


def follow(store: Store, numbers: Collection[int] | None = None, after: int = 0) -> Iterator[EventRecord]:
    """The events after one, the oldest first; of some sweeps until they are over or paused, of all without an end.

    Raises StoreError: no such sweep.
    """
    while True:
        rests = numbers is not None and all(sweeps.one(store, each).state in RESTING for each in numbers)
        found = sweeps.events(store, numbers, after)
        for event in found:
            yield event
            after = event.id
        if rests and not found:
            return
        if not found:
            time.sleep(POLL_S)


# Which sweeps a worker takes ------------------------------------------------------------------------------------------

ALL = "all"
"""What `--devices` calls all devices that a process sees."""


def fits(request: SweepRequest, backend: str, words: Collection[str]) -> bool:
    """Whether a sweep can be done on devices of one kind that `--devices` calls so in their worker."""
    return request.backend == backend and _named(request) <= set(words)


def _named(request: SweepRequest) -> frozenset[str]:
    """The devices that were asked for; none where any will do, or where there is no choice: a worker says so."""
    if request.devices is None or (request.backend in DEVICES and "devices" not in DEVICES[request.backend].choices):
        return frozenset()
    return frozenset(word.strip() for word in request.devices.split(","))


class LivingWorker(NamedTuple):
    """A worker as the store knows it, with the devices that it serves."""

    holder: Holder
    devices: list[DeviceRecord]

    def __str__(self) -> str:
        return f"the worker {self.holder.pid} on {self.holder.host}"

    @property
    def sick(self) -> DeviceRecord | None:
        """One of its devices that is in quarantine: it takes no sweep then."""
        return next((each for each in self.devices if each.health == "quarantined"), None)

    @property
    def backend(self) -> str:
        """The kind of its devices."""
        return self.devices[0].backend

    def fits(self, request: SweepRequest) -> bool:
        """Whether it takes such a sweep."""
        return fits(request, self.backend, [word for each in self.devices for word in each.words])


def living(devices: Sequence[DeviceRecord]) -> list[LivingWorker]:
    """The workers that serve these devices now."""
    found: dict[tuple[str, int], LivingWorker] = {}
    for each in devices:
        if each.holder is not None:
            found.setdefault((each.holder.host, each.holder.pid), LivingWorker(each.holder, [])).devices.append(each)
    return list(found.values())


REMEDY = "name devices that one worker serves, or that none does"


def server_of(store: Store, request: SweepRequest, names: Sequence[str]) -> tuple[LivingWorker, str | None] | None:
    """Which living worker serves devices of these names, in the store's words, and what `--devices` calls them in its
    process, None where any of its devices will do; None where none serves any of them.

    Raises InputError where some of them are served and no worker serves all, or where one is in quarantine.
    """
    known = [each for each in device_health.every(store) if each.name in names]
    workers = living(known)
    if not workers:
        return None
    served = workers[0].devices
    if len(served) < len(names):
        holders = {each.name: each.holder for each in known if each.holder is not None}
        said = (f"process {holders[name].pid}" if name in holders else "nobody" for name in names)
        who = ", ".join(f"{name} is served by {by}" for name, by in zip(names, said, strict=True))
        raise InputError(f"--devices {request.devices}: {who}: {REMEDY}")
    if workers[0].sick is not None:
        sick = workers[0].sick
        raise InputError(f"{sick.name} is in quarantine: {sick.reason}; {sick.remedy}")
    own = [each.words[0] for each in served if each.words]
    return workers[0], ",".join(own) if own and request.devices is not None else None
