"""Following a sweep: its events as they come, until it is over."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator

from autotuner.store import Store, sweeps
from autotuner.store.sweep_records import EventRecord, SweepRecord
from autotuner.values.sweep import State

POLL_S = 0.5
"""Seconds between two looks at the store."""
RESTING = (State.DONE, State.CANCELLED, State.FAILED, State.PAUSED)
"""States in which nothing more comes by itself."""


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


def wait(store: Store, number: int) -> SweepRecord:
    """The sweep, once it is over or paused."""
    while (found := sweeps.one(store, number)).state not in RESTING:
        time.sleep(POLL_S)
    return found
