"""One run of a sweep: from where it was to its end, a pause, or the moment its process has to go."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import Field

from autotuner.jobs import queue
from autotuner.jobs.outlook import found_in
from autotuner.jobs.schedule import ask_again
from autotuner.ops import op_of
from autotuner.run.executor import Executor
from autotuner.spaces.space import SpaceFile
from autotuner.store import Store, sweeps
from autotuner.store.lease import Lease
from autotuner.store.records import SweepRecord
from autotuner.store.sweeps import WISHED, Claim
from autotuner.store.tables import Data
from autotuner.tuning import again
from autotuner.tuning.finals.finals import Finals, due
from autotuner.tuning.finals.retrials import Step
from autotuner.tuning.run.driver import Budget, Converged, Driver, Event, Judged, Started, TieFound, UnderWay
from autotuner.tuning.run.plan import Start
from autotuner.tuning.run.waiting import Waited, Waiting
from autotuner.tuning.workbench import Workbench
from autotuner.values.errors import AutotunerError, DiskFullError, InfrastructureError, LeaseLostError, StoreError
from autotuner.values.model import Model
from autotuner.values.outcome import Calibration
from autotuner.values.problem import Problem
from autotuner.values.ratio import speedup_of
from autotuner.values.sweep import FINALS_MINUTES, Earlier, Found, State, SweepRequest, Wish
from autotuner.values.verdict import Verdict

if TYPE_CHECKING:
    from autotuner.run.ray_cluster import RayCluster

BLOCKS = 60
"""Of a race against the night before, as of `regress`."""
LEAST_S = 5.0
"""Seconds without which no finals are begun."""
SUSPICIOUS = 4
"""Trials in a row that the machinery could not judge, after which a worker has its device probed."""


class Interrupted(Exception):
    """Somebody wants the sweep paused or cancelled."""

    def __init__(self, wish: Wish) -> None:
        super().__init__(str(wish))
        self.wish = wish


class Listener(NamedTuple):
    """Who hears of a run besides the store."""

    hears: Callable[[Event | Step | TimeSpent], None] = lambda _: None
    """Something happened."""
    begins: Callable[[Start, str], None] = lambda *_: None
    """A study of that name is gone on with, or begun."""
    confirms: Callable[[float], None] = lambda _: None
    """Finals begin, that may take so many seconds."""
    ends: Callable[[], None] = lambda: None
    """The search, or the finals, are over, in whatever way."""


class TimeSpent(Model):
    """What the time of a run went to; its last event."""

    seconds: dict[str, float] = Field(description="by what was done")

    @property
    def words(self) -> str:
        """For a person; the longest first."""
        parts = sorted(self.seconds.items(), key=lambda part: -part[1])
        shares = ", ".join(f"{seconds:.0f} s {what}" for what, seconds in parts if seconds >= 1)
        return f"{sum(self.seconds.values()):.0f} s in all: {shares or 'nothing took a second'}"


class WorkClock:
    """Seconds of a sweep over all its runs, and what those of this run went to."""

    def __init__(self, before_s: float) -> None:
        self._before_s = before_s
        self._since = self._at = time.monotonic()
        self._doing = "getting ready"
        self._seconds: dict[str, float] = {}

    def hear(self, event: Event | Step) -> None:
        """Notes what is done from now on, where an event says so."""
        if isinstance(event, UnderWay):
            judges = event.judging or event.racing
            self.goes_on("judging" if judges else "building" if event.building else "choosing what to try")
        elif isinstance(event, Waiting):
            self.goes_on("waiting")
        elif isinstance(event, Waited):
            self.goes_on("timing the baselines")
        elif isinstance(event, Started | Step):
            self.goes_on("confirming the best" if isinstance(event, Step) else "choosing what to try")

    def goes_on(self, doing: str) -> None:
        """What is done from now on."""
        now = time.monotonic()
        self._seconds[self._doing] = self._seconds.get(self._doing, 0.0) + now - self._at
        self._doing, self._at = doing, now

    @property
    def time_spent(self) -> TimeSpent:
        """Until now."""
        self.goes_on(self._doing)
        return TimeSpent(seconds=dict(self._seconds))

    @property
    def spent_s(self) -> float:
        """Until now."""
        return self._before_s + time.monotonic() - self._since


class SweepRun:
    """Works on a claimed sweep in this process."""

    def __init__(
        self,
        store: Store,
        claim: Claim,
        listener: Listener,
        beat: Callable[[], None] = lambda: None,
        devices: str | None = None,
        suspicious: int | None = SUSPICIOUS,
        cluster: RayCluster | None = None,
    ) -> None:
        """`beat` is called every few seconds; what it raises ends the run in good order. `devices`: those to judge on,
        unless the sweep says which. `suspicious`: trials in a row that were not judged, after which the run ends; None
        leaves that to the driver. `cluster`: whose nodes judge, instead of this machine."""
        self._store, self._claim, self._listener, self._cluster = store, claim, listener, cluster
        self._request, self.number = claim.sweep.request, claim.sweep.id
        self._outer_beat, self._devices, self._suspicious = beat, claim.sweep.request.devices or devices, suspicious
        self._clock = WorkClock(claim.sweep.spent_s)
        self._study = claim.sweep.study
        self._found: Found | None = None
        self._calibration: Calibration | None = None
        """By what was heard of the search."""
        self._lost = 0
        self._problem: Problem
        self._driver: Driver | None = None
        self._searched_s = 0.0
        """Seconds of work before this run's search."""
        self._slower = ""
        """What a race against the night before has found."""

    @property
    def spent_s(self) -> float:
        """Seconds of work over all runs."""
        return self._clock.spent_s

    def go(self, here: Workbench | None = None) -> str:
        """Judges until the budget is spent, and holds the finals; the study. `here`: the space on this machine, where
        the caller has it.

        Raises Interrupted, InputError, OracleError or InfrastructureError; nothing is lost then.
        """
        file = SpaceFile.stored(self._request.space_document)
        self._problem = file.problems[0]
        request, here = self._request, here or Workbench(file, devices=self._devices, cluster=self._cluster)
        with here.held(min(60 * request.patience_minutes, self._left_s), self._wait):
            with closing(here.executor()) as executor:
                study, is_idle = self._search(here, executor)
                is_due = request.finals and due(self._store, study, here.default_digest)
                if is_due and is_idle:
                    self.confirm(here, executor, study)
            if is_due and not is_idle:  # the executor was at work on what was in flight
                if self._left_s < LEAST_S:
                    self._hear(Step(text="no time is left for them; `autotuner finals` confirms the best"))
                else:
                    with closing(here.executor()) as executor:
                        self.confirm(here, executor, study)
            if request.every is not None and request.every.last is not None:
                self._regress(here, study, request.every.last)
        self._hear(self._clock.time_spent)
        return study

    @property
    def _left_s(self) -> float:
        """Seconds until the sweep has to be over."""
        minutes = self._request.minutes
        return math.inf if minutes is None else 60 * minutes - self.spent_s

    def end(self, state: State, detail: str, **more: Any) -> SweepRecord:
        """Says in the store how the run ended and what the sweep has found until now; the sweep as it is then. `more`
        is for `sweeps.settle`. Raises StoreError."""
        found, detail = found_in(self._store, self._study), " ".join(detail.split()) or self._slower
        if state == State.DONE and found.best_speedup is None:
            detail = "no variant was measured to the end" if found.judged else "no variant was judged in its time"
        ended = sweeps.settle(self._store, self.number, state, detail, spent_s=self.spent_s, found=found, **more)
        ask_again(self._store, ended)
        return ended

    def _search(self, here: Workbench, executor: Executor) -> tuple[str, bool]:
        """Judges until the study has the trials of the budget, or time is up; the study's name, and whether the
        executor has nothing more to do."""
        request = self._request
        start = here.start(self._store, request)
        driver = Driver(self._store, executor, here.plan(request.sampler, request.seed, start), self._hear)
        self._driver = driver
        self._problem, self._study = here.conditions.compiled_for, driver.name
        self.beat()
        self._listener.begins(start, driver.name)
        self._clock.goes_on("timing the baselines")
        self._searched_s = self.spent_s
        try:
            return driver.name, driver.run(self._budget, self.beat)
        finally:
            self._listener.ends()

    @property
    def _budget(self) -> Budget:
        request = self._request
        left_s = max(0.0, 60 * (request.minutes or math.inf) - self._searched_s)
        return Budget(
            trials=request.trials,
            seconds=max(0.0, left_s - request.finals_s),
            at_most_s=left_s,
            until_converged=request.until_converged,
            quiet_within_s=min(60 * request.quiet_within_minutes, left_s),
        )

    def confirm(self, here: Workbench, executor: Executor, study: str) -> None:
        """The finals. Where they come to no end the search's result stands."""
        request, failed = self._request, ""
        seconds = min(60 * (request.finals_minutes or FINALS_MINUTES), max(0.0, self._left_s))
        self._listener.confirms(seconds)
        try:
            more = {"beat": self.beat, "until": time.monotonic() + self._left_s, "known": self._calibration}
            trials = here.retrials(self._store, study, executor, self._hear, seconds, **more)
            Finals(trials, here.default_digest).run()
        except LeaseLostError:
            raise
        except AutotunerError as error:
            failed = f"not finished: {error}; `autotuner finals` tries again"
        finally:
            self._listener.ends()
        if failed:
            self._hear(Step(text=failed))

    def _regress(self, here: Workbench, study: str, last: Earlier) -> None:
        """The race against the best of the night before, as `regress` has it; on top of the minutes."""
        self._listener.confirms(self._request.finals_s)
        slower = False
        try:
            found = again.regress(self._store, study, last, BLOCKS, here=here, beat=self.beat)
            said, slower = " ".join(again.findings(found)), found.found
        except LeaseLostError:
            raise
        except AutotunerError as error:
            said = f"no race: {error}"
        finally:
            self._listener.ends()
        self._slower = f"since the night before: {said}" if slower else ""
        sweeps.note(self._store, self.number, "regress", f"against the night before: {said}", {"slower": slower})

    # Telling ----------------------------------------------------------------------------------------------------

    def beat(self) -> None:
        """Says that it lives, notes what was spent and found, and hears what somebody wants, another budget too. Raises
        Interrupted."""
        self._outer_beat()
        self._claim.lease.beat()
        now = sweeps.work(self._store, self.number, self.spent_s, self._study, self._found)
        if now.wish is not None:
            raise Interrupted(now.wish)
        if now.request != self._request:
            self._request = now.request
            if self._driver is not None:
                self._driver.budget = self._budget

    def _wait(self, event: Waiting) -> None:
        self._hear(event)
        self.beat()

    def _hear(self, event: Event | Step | TimeSpent) -> None:
        if not isinstance(event, TimeSpent):
            self._clock.hear(event)
        self._listener.hears(event)
        if isinstance(event, Started):
            self._calibration = event.calibration
        kept = _noted(event, self._request.trials, self._problem)
        if kept is not None:
            kind, text, data = kept
            sweeps.note(self._store, self.number, kind, text, data)
            if isinstance(event, Judged):
                self._found = Found.model_validate({name: data[name] for name in ("judged", "best_speedup")})
                self._count(event)

    def _count(self, event: Judged) -> None:
        """Raises InfrastructureError once too many trials in a row were not judged."""
        lost = event.outcome.verdict == Verdict.INFRA_ERROR
        self._lost = self._lost + 1 if lost else 0
        if self._suspicious is not None and self._lost >= self._suspicious:
            why = event.outcome.fault.detail if event.outcome.fault is not None else ""
            raise InfrastructureError(f"{self._lost} trials in a row could not be judged: {why}")


# In the terminal or the program that asks for it ---------------------------------------------------------------------


STOPPED = "stopped where it was begun; the same command goes on"


def run_here(store: Store, request: SweepRequest, here: Workbench, listener: Listener) -> str:
    """Runs a sweep of one space in this process; its study.

    Raises Interrupted where somebody paused or cancelled it, and LeaseHeldError where another process has the study.
    """
    queue.settle_abandoned(store)
    (asked,), _ = queue.submit(store, request, priority=queue.TOP, foreground=True)
    claim = sweeps.claim(store, asked.id, f"a command, process {Lease.process()}")
    assert claim is not None  # no worker takes what belongs to a command
    run = SweepRun(store, claim, listener, suspicious=None)
    state, detail = State.CANCELLED, STOPPED
    try:
        study = run.go(here)
        state, detail = State.DONE, ""
    except Interrupted as interrupted:
        state, detail = WISHED[interrupted.wish], "by a user"
        raise
    except AutotunerError as error:
        state, detail = State.FAILED, str(error)
        raise
    finally:
        # A store that cannot be reached is told by the lease of a process that has gone.
        with suppress(StoreError, DiskFullError):
            run.end(state, detail)
        claim.lease.close()
    return study


# What events say -----------------------------------------------------------------------------------------------------


def _noted(event: Event | Step | TimeSpent, trials: int, problem: Problem) -> tuple[str, str, Data] | None:
    """Kind, line and data of what a run tells; None of what is not kept. Looks of one wait are one event."""
    op = op_of(problem)
    match event:
        case Started():
            pinned = event.calibration.baselines
            of = f"{op.words.baseline} {', '.join(pinned)}" if op.over(pinned) == op.words.baseline else op.over(pinned)
            data: Data = {"study": event.study, "judged": event.judged, "lanes": event.lanes}
            return "started", f"study {event.study}, {event.judged} judged already; {of}", data
        case Judged():
            timed = event.outcome.measurement
            found = event.outcome.line(op.over(each.baseline for each in (timed.timings if timed else ())))
            text = f"[{event.judged}/{trials}] trial {event.number}: {found}"
            return "judged", text, _data(event)
        case Waiting():
            return ("waiting", f"waiting: {event.detail}", {}) if event.since_s < 1 else None
        case Waited():
            how = f"goes on beside others: {event.detail}" if event.detail else "quiet"
            return "waited", f"{how}, after {event.waited_s:.0f} s", {"waited_s": event.waited_s}
        case Converged():
            return "converged", f"what is left promises {event.promise:.2%}, and {event.tie:.2%} is a tie", {}
        case Step():
            return None if event.passing else ("finals", f"finals: {event.text}", {})
        case TimeSpent():
            return "time", event.words, {**event.seconds}
        case TieFound() | UnderWay():
            return None


def _data(event: Judged) -> Data:
    outcome = event.outcome
    found = outcome.measurement if outcome.verdict.has_latency else None
    return {
        "trial": event.number,
        "verdict": str(outcome.verdict),
        "code": None if outcome.fault is None else outcome.fault.code,
        "speedup": None if found is None else found.speedup,
        "judged": event.judged,
        "best_speedup": None if event.best is None else speedup_of(event.best),
        "confirmed": False,
        "seconds": math.fsum(outcome.seconds.values()),
    }
