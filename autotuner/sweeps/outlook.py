"""Where each sweep is: its place in the queue, why it waits, and when it may start."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from datetime import datetime, timedelta

from pydantic import Field

from autotuner.store import Store, device_health, queries, sweeps
from autotuner.store.sweep_records import DeviceRecord, SweepRecord
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
    place: int | None = Field(description="in the queue of its kind of device, 1 the next; null where it does not wait")
    waits: str | None = Field(description="why it does not run")
    left_s: float | None = Field(description="seconds of work left, estimated; null where it is over")
    expected_start: datetime | None = Field(description="of a queued one, estimated; null where nobody can tell")


def outlooks(store: Store, everything: bool = False) -> tuple[Outlook, ...]:
    """The sweeps that are not over, or all of them, in the order in which they are due."""
    states = tuple(State) if everything else (State.QUEUED, State.RUNNING, State.PAUSED)
    return _Outlooks(store, sweeps.every(store, states)).all()


def outlook(store: Store, number: int) -> Outlook:
    """One sweep. Raises StoreError: no such sweep."""
    found = sweeps.one(store, number)
    everything = outlooks(store, everything=found.state.is_over)
    return next(each for each in everything if each.sweep.id == number)


class _Outlooks:
    """One look at the whole queue."""

    def __init__(self, store: Store, found: Sequence[SweepRecord]) -> None:
        self._found = found
        self._trial_s = sweeps.seconds_a_trial(store)
        self._now = queries.now(store)
        self._devices = device_health.every(store)
        self._progress = {name: _progress(store, name) for each in found for name in each.studies}

    def all(self) -> tuple[Outlook, ...]:
        starts = self._starts()
        return tuple(self._outlook(each, starts) for each in self._found)

    def _outlook(self, each: SweepRecord, starts: dict[int, datetime]) -> Outlook:
        waiting = [other for other in self._found if _waits(other) and _alike(other, each)]
        done = [self._progress[name] for name in each.studies]
        best = done[0][1] if done else None
        place = waiting.index(each) + 1 if each in waiting else None
        return Outlook(
            sweep=each,
            judged=sum(judged for judged, _ in done),
            best_speedup=best.speedup if best is not None else None,
            best_confirmed=best is not None and best.confirmed,
            place=place,
            waits=self._why(each, place),
            left_s=None if each.state.is_over else self._left_s(each),
            expected_start=starts.get(each.id),
        )

    def _left_s(self, each: SweepRecord) -> float:
        """By its trials at the pace of its kind of device, and no more than its minutes allow."""
        judged = sum(self._progress[name][0] for name in each.studies)
        pace = self._trial_s.get(each.request.backend, UNKNOWN_S)
        if judged and each.spent_s:
            pace = each.spent_s / judged
        by_trials = max(0, each.request.trials - judged) * pace
        if each.request.minutes is None:
            return by_trials
        return min(by_trials, max(0.0, 60 * each.request.minutes - each.spent_s))

    def _starts(self) -> dict[int, datetime]:
        """When each queued sweep may start, if the workers of now go on working."""
        found = {}
        for backend in {each.request.backend for each in self._found}:
            workers = [each for each in self._serving(backend) if each.health == "healthy"]
            running = [each for each in self._found if _runs(each) and each.request.backend == backend]
            free = [self._left_s(each) for each in running][: len(workers)]
            free += [0.0] * (len(workers) - len(free))
            heapq.heapify(free)
            for each in self._found:
                if free and _waits(each) and each.request.backend == backend:
                    at = heapq.heappop(free)
                    if each.not_before is not None:
                        at = max(at, (each.not_before - self._now).total_seconds())
                    found[each.id] = self._now + timedelta(seconds=at)
                    heapq.heappush(free, at + self._left_s(each))
        return found

    def _serving(self, backend: str) -> list[DeviceRecord]:
        """One device of each living worker for that kind."""
        by_worker = {
            (each.holder.host, each.holder.pid): each
            for each in self._devices
            if each.backend == backend and each.holder is not None
        }
        return list(by_worker.values())

    def _why(self, each: SweepRecord, place: int | None) -> str | None:
        if each.state == State.PAUSED:
            return "paused: `autotuner resume` goes on"
        if place is None:
            return None
        if each.not_before is not None and each.not_before > self._now:
            return f"{each.detail}; tried again at {each.not_before:%H:%M:%S} UTC"
        serving = self._serving(each.request.backend)
        if not serving:
            return f"no worker serves a device of kind {each.request.backend}: start `autotuner worker`"
        sick = [device for device in serving if device.health == "quarantined"]
        if len(sick) == len(serving):
            return f"{sick[0].name} is in quarantine: {sick[0].reason}"
        if each.state == State.RUNNING:
            return "its worker has gone: the next free one takes it over"
        ahead = place - 1 + sum(_runs(other) and _alike(other, each) for other in self._found)
        return f"behind {ahead} other{'s' if ahead > 1 else ''}" if ahead else "a worker is about to take it"


def _runs(each: SweepRecord) -> bool:
    return each.state == State.RUNNING and each.holder is not None


def _waits(each: SweepRecord) -> bool:
    """Queued, or left by a worker that has gone."""
    lost = each.state == State.RUNNING and each.holder is None
    return (each.state == State.QUEUED or lost) and not each.foreground


def _alike(one: SweepRecord, other: SweepRecord) -> bool:
    return one.request.backend == other.request.backend


def _progress(store: Store, study: str) -> tuple[int, Quoted | None]:
    try:
        return queries.judged_and_best(store, study)[0], standings.quoted(store, study)
    except StoreError:  # begun, and killed before the study was made
        return 0, None
