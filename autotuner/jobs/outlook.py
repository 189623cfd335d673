"""Where each sweep is: its place in the queue, why it waits, and when it may start."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import NamedTuple

from pydantic import Field

from autotuner.jobs.fitting import living
from autotuner.store import Revision, Store, device_health, queries, sweeps
from autotuner.store.sweep_records import SweepRecord
from autotuner.tuning import standings
from autotuner.tuning.standings import Quoted
from autotuner.values.errors import StoreError
from autotuner.values.model import Model
from autotuner.values.sweep import State

UNKNOWN_S = 30.0
"""Seconds that a trial is taken to last on a kind of device that has judged none yet."""


class Outlook(Model):
    """A sweep, and what can be said of it now."""

    sweep: SweepRecord
    judged: int = Field(description="variants judged in its studies")
    best_speedup: float | None = Field(
        description="of the trial to use, against the baseline, confirmed where it is; of a set the first study's"
    )
    best_confirmed: bool = Field(default=False, description="by finals; else it is the estimate of the search")
    place: int | None = Field(description="among those that wait for the same workers, 1 the next; null: it waits not")
    waits: str | None = Field(description="why it does not run")
    left_s: float | None = Field(description="seconds of work left, estimated; null where it is over")
    expected_start: datetime | None = Field(description="of a queued one, estimated; null where nobody can tell")


class Done(NamedTuple):
    """How far a study is."""

    judged: int
    best: Quoted | None


class Progress:
    """How far studies are. Each is read again only once something of it has changed: finals that are over hold many
    times, and a store has many studies. Any thread may ask."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: dict[str, tuple[Revision, Done]] = {}

    def of(self, study: str) -> Done:
        """How far a study is now."""
        try:
            revision = queries.revision(self._store, study)
            kept, done = self._kept.get(study, (None, Done(0, None)))
            if kept != revision:
                done = Done(queries.judged_and_best(self._store, study)[0], standings.quoted(self._store, study))
                self._kept[study] = revision, done
            return done
        except StoreError:  # begun, and killed before the study was made
            return Done(0, None)


def outlooks(store: Store, over: int | None = 0, progress: Progress | None = None) -> tuple[Outlook, ...]:
    """The sweeps that are not over, in the order in which they are due, and of the others the last `over`, or all.

    `progress`: what is known already of this store.
    """
    return _Outlooks(store, sweeps.every(store, over=over), progress).all()


def outlook(store: Store, number: int, progress: Progress | None = None) -> Outlook:
    """One sweep. Raises StoreError: no such sweep."""
    queue = sweeps.every(store, over=0)
    found = next((each for each in queue if each.id == number), None)
    if found is None:
        found = sweeps.one(store, number)
        queue = (found,)
    return _Outlooks(store, queue, progress).one(found)


class _Outlooks:
    """One look at the queue. Of a sweep no more is read than is asked for."""

    def __init__(self, store: Store, found: Sequence[SweepRecord], progress: Progress | None) -> None:
        self._found = found
        self._progress = cache((progress or Progress(store)).of)
        self._trial_s = sweeps.seconds_a_trial(store)
        self._now = queries.now(store)
        self._workers = living(device_health.every(store))
        self._waiting = [each for each in found if _waits(each)]
        self._takers = {each.id: self._who_takes(each) for each in self._waiting}
        self._busy = self._who_is_busy()

    def all(self) -> tuple[Outlook, ...]:
        starts, places = self._starts(), self._places()
        return tuple(self._outlook(each, places.get(each.id), starts.get(each.id)) for each in self._found)

    def one(self, each: SweepRecord) -> Outlook:
        return self._outlook(each, self._places().get(each.id), self._starts().get(each.id))

    def _outlook(self, each: SweepRecord, place: int | None, start: datetime | None) -> Outlook:
        best = self._progress(each.studies[0]).best if each.studies else None
        return Outlook(
            sweep=each,
            judged=self._judged(each),
            best_speedup=best.speedup if best is not None else None,
            best_confirmed=best is not None and best.confirmed,
            place=place,
            waits=self._why(each, place),
            left_s=None if each.state.is_over else self._left_s(each),
            expected_start=start,
        )

    def _judged(self, each: SweepRecord) -> int:
        return sum(self._progress(name).judged for name in each.studies)

    def _left_s(self, each: SweepRecord) -> float:
        """By its trials at the pace of its kind of device, and no more than its minutes allow."""
        judged = self._judged(each)
        pace = self._trial_s.get(each.request.backend, UNKNOWN_S)
        if judged and each.spent_s:
            pace = each.spent_s / judged
        by_trials = max(0, each.request.trials - judged) * pace
        if each.request.minutes is None:
            return by_trials
        return min(by_trials, max(0.0, 60 * each.request.minutes - each.spent_s))

    def _who_is_busy(self) -> dict[int, SweepRecord]:
        """What each worker works on now, by the worker's place: its sweep, or that of a command which has a device
        that it serves too."""
        found: dict[int, SweepRecord] = {}
        for each in filter(_runs, self._found):
            own = [at for at, worker in enumerate(self._workers) if worker.works_on(each.holder)]
            beside = [
                at
                for at, worker in enumerate(self._workers)
                if at not in found and worker.is_beside(each.holder) and worker.fits(each.request)
            ]
            for at in (own or beside)[:1]:
                found[at] = each
        return found

    def _who_takes(self, each: SweepRecord) -> list[int]:
        """The workers that serve what a sweep asks for, by their places."""
        return [at for at, worker in enumerate(self._workers) if worker.fits(each.request)]

    def _places(self) -> dict[int, int]:
        """Of each sweep that waits its place in the queue."""
        waiting = self._waiting
        return {
            each.id: 1 + sum(self._are_rivals(each, other) for other in waiting[:ahead])
            for ahead, each in enumerate(waiting)
        }

    def _are_rivals(self, one: SweepRecord, other: SweepRecord) -> bool:
        """Whether they wait for a worker in common; or, where nobody serves either, for the same kind of device."""
        first, second = self._takers[one.id], self._takers[other.id]
        if first or second:
            return not {*first}.isdisjoint(second)
        return one.request.backend == other.request.backend

    def _starts(self) -> dict[int, datetime]:
        """When each queued sweep may start, if the workers of now go on working."""
        found = {}
        healthy = [at for at, worker in enumerate(self._workers) if worker.sick is None]
        free_s = {at: self._left_s(self._busy[at]) if at in self._busy else 0.0 for at in healthy}
        for each in self._waiting:
            takers = [at for at in self._takers[each.id] if at in free_s]
            if not takers:
                continue
            first = min(takers, key=lambda at: free_s[at])
            starts_s = free_s[first]
            if each.not_before is not None:
                starts_s = max(starts_s, (each.not_before - self._now).total_seconds())
            found[each.id] = self._now + timedelta(seconds=starts_s)
            free_s[first] = starts_s + self._left_s(each)
        return found

    def _why(self, each: SweepRecord, place: int | None) -> str | None:
        if each.state == State.PAUSED:
            return "paused: `autotuner sweep resume` goes on"
        if place is None:
            return None
        if each.not_before is not None and each.not_before > self._now:
            return f"{each.detail}; tried again at {each.not_before:%H:%M:%S} UTC"
        return self._why_it_waits(each, place)

    def _why_it_waits(self, each: SweepRecord, place: int) -> str:
        takers = self._takers[each.id]
        if not takers:
            return self._nobody(each)
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

    def _nobody(self, each: SweepRecord) -> str:
        """Of a sweep that no worker serves."""
        backend, named = each.request.backend, each.request.devices
        if named is None or all(worker.backend != backend for worker in self._workers):
            return f"no worker serves a device of kind {backend}: start `autotuner worker`"
        return f"no worker serves {named}: start `autotuner worker --devices {named}`"


def _runs(each: SweepRecord) -> bool:
    return each.state == State.RUNNING and each.holder is not None


def _waits(each: SweepRecord) -> bool:
    """Queued, or left by a worker that has gone."""
    lost = each.state == State.RUNNING and each.holder is None
    return (each.state == State.QUEUED or lost) and not each.foreground
