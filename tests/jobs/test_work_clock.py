"""A sweep's minutes are wall time: all waiting counts, and what is in flight when they are over is given up."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from autotuner.jobs import queue
from autotuner.jobs.sweep_run import Listener, SweepRun, TimeSpent, WorkClock
from autotuner.run.jobs import AnyJob, JudgeJob, RaceJob, Result
from autotuner.store import Store, queries, sweeps
from autotuner.tuning.finals.finals import Finals
from autotuner.tuning.finals.retrials import OVER_S, Retrials, Step
from autotuner.tuning.run.driver import UnderWay
from autotuner.tuning.run.plan import Plan
from autotuner.tuning.run.waiting import Waiting
from autotuner.values.errors import InputError
from tests.helpers import driven, simulated
from tests.helpers.inline_executor import InlineExecutor
from tests.helpers.simulated_finals import DEFAULT


class Clock:
    """A monotonic clock that also goes on when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.more_s = 0.0
        real = time.monotonic
        monkeypatch.setattr(time, "monotonic", lambda: real() + self.more_s)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_all_that_a_run_does_counts_and_is_told(clock: Clock) -> None:
    work = WorkClock(5.0)
    clock.more_s += 10
    for event in (
        UnderWay(building=(0,), judging=(), racing=False),
        UnderWay(building=(1,), judging=(0,), racing=False),
        Waiting(detail="", since_s=0),
        Step(text="timing the baselines"),
    ):
        work.hear(event)
        clock.more_s += 100
    assert work.spent_s == pytest.approx(415, abs=5)
    assert work.time_spent.words.startswith("410 s in all: 100 s ")
    assert {name: round(seconds, -1) for name, seconds in work.time_spent.seconds.items()} == {
        "getting ready": 10,
        "building": 100,
        "judging": 100,
        "waiting": 100,
        "confirming the best": 100,
    }


class Slow(InlineExecutor):
    """Answers that take their time; nobody is told of the wait before it is over, or the time is."""

    def __init__(self, clock: Clock, job_s: float) -> None:
        super().__init__(simulated.backend(), 1)
        self._clock, self._job_s, self._left_s = clock, job_s, job_s
        self.is_closed = False

    def wait(self, timeout: float | None = None) -> tuple[int, Result] | None:
        if timeout is not None and timeout < self._left_s:
            self._clock.more_s += timeout + 0.001
            self._left_s -= timeout
            return None
        self._clock.more_s += self._left_s
        self._left_s = self._job_s
        return super().wait(timeout)

    def close(self) -> None:
        self.is_closed = True


class Here:
    """A simulated space, with executors that are slow."""

    def __init__(self, clock: Clock, job_s: float) -> None:
        self._clock, self._job_s = clock, job_s
        self.executors: list[Slow] = []
        self.conditions, self.default_digest, self.device = simulated.conditions(), DEFAULT, simulated.DEVICE

    def held(self, patience_s: float, listen: Any) -> Any:
        return nullcontext()

    def executor(self) -> Slow:
        self.executors.append(Slow(self._clock, self._job_s))
        return self.executors[-1]

    def start(self, *_: object) -> Any:
        return SimpleNamespace(first=(), known_points=None)

    def plan(self, *_: object) -> Plan:
        return Plan(simulated.space(), self.device, self.conditions)

    def retrials(self, store: Store, study: str, executor: Slow, *rest: Any, **more: Any) -> Retrials:
        return Retrials(store, study, self.conditions, executor, {"os": "none"}, *rest, **more)


@pytest.fixture
def heard() -> list[object]:
    return []


@pytest.fixture(params=[1000])
def run(store: Store, heard: list[object], request: pytest.FixtureRequest) -> Iterator[SweepRun]:
    """A sweep of a minute at its begin. The parameter: its trials."""
    queue.submit(store, queue.request_for(simulated.space().file, minutes=1.0, trials=request.param))
    claim = sweeps.claim(store, 1, "me")
    assert claim is not None
    yield SweepRun(store, claim, Listener(hears=heard.append, confirms=heard.append))
    claim.lease.close()


@pytest.mark.parametrize("job_s", [0.5, 3.0, 25.0, 70.0], ids=["quick", "usual", "hardly", "nothing judged"])
def test_a_run_ends_in_its_minutes_whatever_its_jobs_take(
    store: Store, run: SweepRun, clock: Clock, heard: list[object], job_s: float
) -> None:
    here: Any = Here(clock, job_s)
    began = time.monotonic()
    study = run.go(here)
    assert time.monotonic() - began <= 60 + OVER_S + 5
    assert all(executor.is_closed for executor in here.executors)
    assert isinstance(heard[-1], TimeSpent)
    judged = queries.judged_count(store, study)
    assert (judged > 0) == (job_s < 20)
    if job_s < 1:
        assert queries.finals(store, study) is not None, "there was time for the finals"
    if not judged:
        assert "timing the baselines" in heard[-1].words


@pytest.mark.parametrize("run", [6], indirect=True)
def test_finals_have_the_time_that_the_search_leaves(run: SweepRun, clock: Clock, heard: list[object]) -> None:
    here: Any = Here(clock, 0.5)
    run.go(here)
    (seconds,) = (each for each in heard if isinstance(each, float))
    assert 40 < seconds < 60


class Busy(Slow):
    """A machine on which the third heat of a variant takes all the time, and a proof longer than is kept for it."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock, 0.1)
        self._heats = Counter[str]()

    def submit(self, job: AnyJob, lane: int = 0) -> int:
        raced = [each.digest for each in job.artifacts] if isinstance(job, RaceJob) else []
        self._heats.update(raced)
        is_third, is_proof = 3 in map(self._heats.get, raced), isinstance(job, JudgeJob) and job.fresh
        self._job_s = 31.0 if is_third else 4.0 if is_proof else 0.1
        if not self._waiting:
            self._left_s = self._job_s
        return super().submit(job, lane)


def test_who_is_confirmed_is_proven_after_the_time_and_finals_end(store: Store, clock: Clock) -> None:
    study = driven.swept(store, InlineExecutor(simulated.backend(), 1), 12)
    began, heard = time.monotonic(), list[Step]()
    where = (store, study, simulated.conditions(), Busy(clock), {"os": "none"}, heard.append)
    found = Finals(Retrials(*where, seconds=20, until=began + 20), DEFAULT).run()
    assert [proof.digest for proof in found.standing.proofs] == [found.standing.leader]
    assert time.monotonic() - began < 20 + 2 * OVER_S
    assert [step.text for step in heard if step.text.startswith("the time is over; the proof of trial")]


def test_finals_that_leave_no_time_to_search_are_refused() -> None:
    with pytest.raises(InputError, match="finals of 3 of 2 minutes leave no time to search"):
        queue.request_for(simulated.space().file, minutes=2.0, finals_minutes=3.0)
    assert queue.request_for(simulated.space().file, minutes=1.5).finals_s == 30
    assert queue.request_for(simulated.space().file).finals_s == 120
    assert queue.request_for(simulated.space().file, minutes=1.5, finals=False).finals_s == 0
