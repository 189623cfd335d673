"""What counts as work on a sweep: no waiting, however it ends."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from autotuner.jobs import queue
from autotuner.jobs.sweep_run import SweepRun, WorkClock
from autotuner.store import Store, sweeps
from autotuner.tuning import device_lock
from autotuner.tuning.device_lock import held
from autotuner.tuning.finals import heats
from autotuner.tuning.finals.retrials import Retrials
from autotuner.tuning.run.calm import Calm, Protest, Waiting
from autotuner.values.errors import DeviceBusyError
from tests.helpers import simulated
from tests.helpers.fake_line import FakeLine
from tests.helpers.simulated_finals import DEFAULT, DEVIATIONS, swept
from tests.helpers.spoilt import Spoilt


class Clock:
    """A monotonic clock that also goes on when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.more_s = 0.0
        real = time.monotonic
        monkeypatch.setattr(time, "monotonic", lambda: real() + self.more_s)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> list[float]:
    """The waits for a device, which take no time."""
    found: list[float] = []

    def pause(seconds: float, beat: object) -> None:
        found.append(seconds)
        clock.more_s += seconds

    monkeypatch.setattr(device_lock, "pause", pause)
    return found


@pytest.fixture(params=[600.0])
def run(store: Store, request: pytest.FixtureRequest) -> Iterator[SweepRun]:
    """A sweep at its begin. The parameter: seconds of its patience."""
    queue.submit(store, queue.request_for(simulated.space().file, patience_minutes=request.param / 60))
    claim = sweeps.claim(store, 1, "me")
    assert claim is not None
    listener: Any = SimpleNamespace(hears=lambda _: None, confirms=lambda: None, ends=lambda: None)
    run = SweepRun(store, claim, listener)
    run._problem = simulated.space().file.problems[0]
    yield run
    claim.lease.release()


def test_the_clock_stands_still_while_a_calm_machine_is_waited_for(clock: Clock) -> None:
    work = WorkClock(5.0)
    for event in (Calm(waited_s=100), Protest(detail="", waited_s=100)):
        clock.more_s += 40
        work.hear(Waiting(detail="", since_s=40))
        clock.more_s += 60
        work.hear(Waiting(detail="", since_s=100))
        assert 5 <= work.spent_s < 60, "it may be stopped now"
        work.hear(event)
        assert 5 <= work.spent_s < 60
    clock.more_s += 1000
    assert work.spent_s >= 1005


class Locked:
    """Where a sweep runs, on a device that somebody else has."""

    def __init__(self) -> None:
        self.name, self.other = f"test-{uuid.uuid4()}", ExitStack()
        self.other.enter_context(held([self.name], "a device", 0, lambda _: None))

    def held(self, patience_s: float, listen: Any) -> Any:
        return held([self.name], "a device", patience_s, listen)


def test_waiting_for_a_device_is_no_work(run: SweepRun, pauses: list[float]) -> None:
    here: Any = Locked()
    before, spent_s = time.monotonic(), run.spent_s
    with pytest.raises(DeviceBusyError), run.held(here):
        pass
    assert sum(pauses) > 500
    assert run.spent_s - spent_s <= time.monotonic() - before - sum(pauses)


@pytest.mark.parametrize("is_stopped", [False, True])
def test_waiting_in_finals_is_no_work(
    store: Store, run: SweepRun, monkeypatch: pytest.MonkeyPatch, clock: Clock, is_stopped: bool
) -> None:
    """Also where they are stopped in the middle of it."""
    pauses: list[float] = []

    def pause(seconds: float, beat: object) -> None:
        if is_stopped and len(pauses) == 2:
            raise KeyboardInterrupt
        pauses.append(seconds)
        clock.more_s += seconds

    study, busy = swept(store, simulated.truth, 12), [False] * 5 + [True] * 4
    monkeypatch.setattr(heats, "pause", pause)
    by = Spoilt(FakeLine(simulated.truth, deviations=DEVIATIONS), lambda job: bool(busy) and busy.pop(0))

    def retrials(store: Store, study: str, executor: Spoilt, *rest: Any) -> Retrials:
        return Retrials(store, study, simulated.conditions(), executor, {"os": "none"}, *rest)

    here: Any = SimpleNamespace(retrials=retrials, default_digest=DEFAULT)
    before, spent_s = time.monotonic(), run.spent_s
    if is_stopped:
        with pytest.raises(KeyboardInterrupt):
            run.confirm(here, by, study)
    else:
        run.confirm(here, by, study)
    assert len(pauses) == 2 + (not is_stopped)
    assert run.spent_s - spent_s <= time.monotonic() - before - sum(pauses)
