"""One run of a sweep: from where it was to its end, a pause, or the moment its process has to go."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from autotuner.jobs.outlook import found_in
from autotuner.ops import op_of
from autotuner.run.executor import Executor
from autotuner.spaces.space import SpaceFile
from autotuner.store import Store, sweeps
from autotuner.store.sweep_records import SweepRecord
from autotuner.store.sweeps import Claim
from autotuner.store.tables import Data
from autotuner.tuning.finals.finals import Finals, due
from autotuner.tuning.finals.retrials import Step
from autotuner.tuning.run.calm import Calm, Caution, Protest, Waiting
from autotuner.tuning.run.driver import Budget, Converged, Event, Judged, Started, TieFound, UnderWay
from autotuner.tuning.run.plan import Start
from autotuner.tuning.workbench import Workbench
from autotuner.values.errors import AutotunerError, InfrastructureError, LeaseLostError
from autotuner.values.outcome import Outcome
from autotuner.values.problem import Problem
from autotuner.values.ratio import speedup_of
from autotuner.values.sweep import Found, State, Wish
from autotuner.values.verdict import Verdict

if TYPE_CHECKING:
    from autotuner.run.ray_cluster import RayCluster

SUSPICIOUS = 4
"""Trials in a row that the machinery could not judge, after which a worker has its device probed."""


class Interrupted(Exception):
    """Somebody wants the sweep paused or cancelled."""

    def __init__(self, wish: Wish) -> None:
        super().__init__(str(wish))
        self.wish = wish


class Listener(NamedTuple):
    """Who hears of a run besides the store."""

    hears: Callable[[Event | Step], None] = lambda _: None
    """Something happened."""
    begins: Callable[[Start, str], None] = lambda *_: None
    """A study of that name is gone on with, or begun."""
    confirms: Callable[[], None] = lambda: None
    """Finals begin."""
    ends: Callable[[], None] = lambda: None
    """The search, or the finals, are over, in whatever way."""


class WorkClock:
    """Seconds of work on a sweep over all its runs. It stands still while a calm machine or a device is waited for."""

    def __init__(self, before_s: float) -> None:
        self._before_s, self._since = before_s, time.monotonic()
        self._waited_s = 0.0
        self._waits_since: float | None = None
        """When the wait began that is not over yet, on the monotonic clock."""
        self._waits_of: list[Callable[[], float]] = []

    def hear(self, event: Event | Step) -> None:
        """Takes waiting out."""
        if isinstance(event, Waiting) and self._waits_since is None:
            self._waits_since = time.monotonic() - event.since_s
        if isinstance(event, Calm | Protest):
            self._waits_since = None
            self._waited_s += event.waited_s

    def has_device(self) -> None:
        """The wait for a device is over, if there was one."""
        self._waited_s += self._waits_s
        self._waits_since = None

    def leave_out(self, waited_s: Callable[[], float]) -> None:
        """Takes out what it says that others have waited, now and whenever it is asked."""
        self._waits_of.append(waited_s)

    @property
    def _waits_s(self) -> float:
        return 0.0 if self._waits_since is None else time.monotonic() - self._waits_since

    @property
    def spent_s(self) -> float:
        """Until now."""
        waited_s = self._waited_s + self._waits_s + sum(each() for each in self._waits_of)
        return self._before_s + max(0.0, time.monotonic() - self._since - waited_s)


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
        """By what was heard of the search."""
        self._lost = 0
        self._problem: Problem

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
        here = here or Workbench(file, devices=self._devices, cluster=self._cluster)
        with self.held(here), closing(here.executor()) as executor:
            study = self._search(here, executor)
            self.confirm(here, executor, study)
        return study

    @contextmanager
    def held(self, here: Workbench) -> Iterator[None]:
        """The devices, held against other autotuners of this machine."""
        with here.held(60 * self._request.patience_minutes, self._wait):
            self._clock.has_device()
            yield

    def end(self, state: State, detail: str, **more: Any) -> SweepRecord:
        """Says in the store how the run ended and what the sweep has found until now; the sweep as it is then. `more`
        is for `sweeps.settle`. Raises StoreError."""
        found, detail = found_in(self._store, self._study), " ".join(detail.split())
        if state == State.DONE and found.best_speedup is None:
            detail = "no variant was measured to the end"
        return sweeps.settle(self._store, self.number, state, detail, spent_s=self.spent_s, found=found, **more)

    def _search(self, here: Workbench, executor: Executor) -> str:
        """Judges until the study has the trials of the budget, or time is up; the study's name."""
        request = self._request
        start = here.start(self._store, request.sampler, request.like, request.cold)
        driver = here.driver(self._store, executor, request.sampler, request.seed, self._hear, start)
        self._problem, self._study = here.conditions.compiled_for, driver.name
        self.beat()
        self._listener.begins(start, driver.name)
        minutes = request.minutes
        seconds = math.inf if minutes is None else max(0.0, 60 * minutes - self.spent_s)
        budget = Budget(trials=request.trials, seconds=seconds, until_converged=request.until_converged)
        caution = Caution(patience_s=60 * request.patience_minutes, believes=request.calm)
        try:
            driver.run(budget, caution, self.beat)
        finally:
            self._listener.ends()
        return driver.name

    def confirm(self, here: Workbench, executor: Executor, study: str) -> None:
        """The finals, unless those who would be in them were in the last ones. Without them the search's result
        stands."""
        request = self._request
        if not request.finals or not due(self._store, study, here.default_digest):
            return
        failed = ""
        self._listener.confirms()
        try:
            seconds, patience_s = 60 * request.finals_minutes, 60 * request.patience_minutes
            trials = here.retrials(self._store, study, executor, self._hear, seconds, patience_s, self.beat)
            finals = Finals(trials, here.default_digest)
            self._clock.leave_out(lambda: finals.waited_s)
            finals.run()
        except LeaseLostError:
            raise
        except AutotunerError as error:
            failed = f"not finished: {error}; `autotuner finals` tries again"
        finally:
            self._listener.ends()
        if failed:
            self._hear(Step(text=failed))

    # Telling ----------------------------------------------------------------------------------------------------

    def beat(self) -> None:
        """Says that it lives, notes what was spent and found, and hears what somebody wants. Raises Interrupted."""
        self._outer_beat()
        self._claim.lease.beat()
        wish = sweeps.work(self._store, self.number, self.spent_s, self._study, self._found)
        if wish is not None:
            raise Interrupted(wish)

    def _wait(self, event: Waiting) -> None:
        self._hear(event)
        self.beat()

    def _hear(self, event: Event | Step) -> None:
        self._clock.hear(event)
        self._listener.hears(event)
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


# What events say -----------------------------------------------------------------------------------------------------


def _noted(event: Event | Step, trials: int, problem: Problem) -> tuple[str, str, Data] | None:
    """Kind, line and data of what a run tells; None of what is not kept. Looks of one wait are one event."""
    baseline = op_of(problem).words.baseline
    match event:
        case Started():
            of = ", ".join(event.calibration.baselines)
            data: Data = {"study": event.study, "judged": event.judged, "lanes": event.lanes}
            return "started", f"study {event.study}, {event.judged} judged already; {baseline} {of}", data
        case Judged():
            text = f"[{event.judged}/{trials}] trial {event.number}: {_outcome_line(event.outcome, baseline)}"
            return "judged", text, _data(event)
        case Waiting():
            return ("waiting", f"waiting: {event.detail}", {}) if event.since_s < 1 else None
        case Calm():
            said = "; ".join(filter(None, [f"calm again after {event.waited_s:.0f} s", event.detail]))
            return "calm", said, {"waited_s": event.waited_s}
        case Protest():
            return "protest", f"disturbed still after {event.waited_s:.0f} s: {event.detail}", {}
        case Converged():
            return "converged", f"what is left promises {event.promise:.2%}, and {event.tie:.2%} is a tie", {}
        case Step():
            return None if event.passing else ("finals", f"finals: {event.text}", {})
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
        "seconds": math.fsum(outcome.seconds.values()),
    }


def _outcome_line(outcome: Outcome, baseline: str) -> str:
    """A judged variant in one line."""
    if outcome.measurement is not None:
        note = "" if outcome.verdict == Verdict.MEASURED else f" ({outcome.verdict.words})"
        micros = statistics.median(outcome.measurement.timings[0].variant_us)
        return f"{outcome.measurement.speedup:.3f}x {baseline}, {micros:.1f} us{note}  {outcome.variant}"
    why = f" {outcome.fault.code}" if outcome.fault else ""
    if outcome.fault is not None and not outcome.verdict.judges:  # not the variant's: a person can help
        why += f" ({outcome.fault.detail.partition(chr(10))[0]})"
    return f"{outcome.verdict.words}{why}  {outcome.variant}"
