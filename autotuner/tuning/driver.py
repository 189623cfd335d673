"""A run of a study: propose, find, submit, wait for any, record, tell.

As many variants are in flight as keep the executor busy (`flights`), each device has a lane (`device_lane`), and what
the study has found so far is in memory (`outcomes`). An outcome is recorded in our tables first and told to Optuna
second (`optuna_study`).
"""

from __future__ import annotations

import time
from collections.abc import Callable

from optuna.trial import Trial
from pydantic import Field

from autotuner.run.ask import Heartbeat, next_answer
from autotuner.run.executor import Executor
from autotuner.store import Store
from autotuner.tuning.device_lane import DeviceLanes
from autotuner.tuning.flights import Flights, Landed
from autotuner.tuning.optuna_study import OptunaStudy
from autotuner.tuning.outcomes import Outcomes
from autotuner.tuning.plan import Plan
from autotuner.values.model import Model
from autotuner.values.outcome import Calibration, Outcome
from autotuner.values.verdict import Verdict

DRIFTED = "measure.drift"
"""The code of the fault of a measurement that the thermometer refused."""
DRIFTS = 3
"""Such faults in a row after which the machine is not what it was at calibration, and is calibrated anew."""
CONVERGED_AFTER = 10
"""Proposals in a row, each promising less than a tie, after which a search has converged."""


class Budget(Model):
    """When a run ends."""

    trials: int = Field(description="judged variants of the study, those of earlier runs included")
    seconds: float = Field(default=float("inf"), description="of this run; what is in flight then is judged")
    until_converged: bool = Field(default=False, description="also when the search has converged")


class Started(Model):
    """A run of the driver begins, or goes on after its devices were calibrated anew."""

    study: str
    judged: int
    calibration: Calibration = Field(description="of the first lane")
    lanes: int = 1


class TieFound(Model):
    """The best variant raced against itself."""

    tie: float = Field(description="how wide a tie is by all such races so far, relative")


class Converged(Model):
    """The search expects no more than a tie from what is left."""

    promise: float = Field(description="expected improvement of the last proposal, relative")
    tie: float


class Judged(Model):
    """A variant was judged and recorded."""

    number: int
    outcome: Outcome
    judged: int
    best: float | None = Field(description="the best objective so far")


Event = Started | Judged | TieFound | Converged
Listener = Callable[[Event], None]


class Driver:
    """Runs a study until its budget is spent. One driver owns a store at a time."""

    def __init__(self, store: Store, executor: Executor, plan: Plan, listen: Listener = lambda _: None) -> None:
        self._store, self._executor, self._plan, self._listen = store, executor, plan, listen
        self.name = plan.record.name
        """Of the study."""

    def run(self, budget: Budget) -> None:
        """Raises InputError, OracleError or InfrastructureError when the sweep cannot go on; nothing is lost then."""
        with self._store.lease() as lease, self._store.errors():
            run = _Run(self._store, self._executor, self._plan, self._listen, Heartbeat(lease.beat))
            run.begin()
            try:
                run.loop(budget)
            finally:
                run.finish()


class _Run:
    """One run of a driver, while it holds the lease."""

    def __init__(self, store: Store, executor: Executor, plan: Plan, listen: Listener, beat: Heartbeat) -> None:
        self._store, self._executor, self._listen, self._beat = store, executor, listen, beat
        self._name, self._points = plan.record.name, len(plan.space)
        self._outcomes = Outcomes()
        self._study = OptunaStudy(store, plan, self._outcomes)
        self._conditions = plan.conditions.model_copy(update={"seeds": self._study.seeds})
        for number, outcome in store.judged_numbers(self._name).items():
            self._outcomes.add(number, outcome)
        environments = [*plan.environments, *([plan.device.environment] * executor.lanes)]
        self._lanes = DeviceLanes(store, executor, self._name, self._conditions, environments)
        self._flights = Flights(executor, self._lanes, self._outcomes)
        self._drifts = 0
        """Measurements in a row that the thermometer refused."""
        self._unpromising = 0
        """Proposals in a row that promised less than a tie."""

    def begin(self) -> None:
        """Calibrates the devices and starts their sessions."""
        calibration = self._lanes.begin(self._beat)
        self._drifts = 0
        judged, lanes = self._outcomes.judged, len(self._lanes)
        self._listen(Started(study=self._name, judged=judged, calibration=calibration, lanes=lanes))

    def finish(self) -> None:
        """Ends the sessions in good order."""
        self._lanes.finish()

    def loop(self, budget: Budget) -> None:
        """Judges variants until the budget is spent and nothing is in flight."""
        until = time.monotonic() + budget.seconds
        self._study.settle()
        while True:
            drifted = self._drifts >= DRIFTS
            if not drifted:  # else the jobs under way come to their end first
                for duplicate in self._flights.feed():
                    self._record(duplicate)
                while self._has_room(budget) and time.monotonic() < until:
                    self._propose()
            if self._flights.are_under_way or self._lanes.is_racing:
                self._wait()
            elif drifted:
                self.finish()
                self.begin()
            elif not len(self._flights):
                return

    def _has_room(self, budget: Budget) -> bool:
        """Whether one more variant may be in flight, should all the others be judged."""
        if budget.until_converged and self._unpromising >= CONVERGED_AFTER:
            return False
        flying, most = len(self._flights), min(budget.trials, self._outcomes.judgeable(self._points))
        return flying < self._executor.width and self._outcomes.judged + flying < most

    def _propose(self) -> None:
        """Starts a trial. A variant that was judged under another number is told at once; no other driver can have
        judged any meanwhile."""
        trial, variant = self._study.propose()
        self._note_promise()
        self._beat()  # some samplers take seconds a proposal
        known = self._outcomes.find(variant) if variant is not None else None
        if known is not None:
            self._tell(trial, known)
        elif variant is None or variant in self._flights:  # another program enqueued no valid point, or one twice
            self._study.fail(trial)
        else:
            self._store.flush()
            self._flights.start(trial, variant, self._conditions)

    def _note_promise(self) -> None:
        """Counts the proposals that promise less than a tie; enqueued points promise nothing."""
        promise = self._study.promise()
        if promise is None:
            return
        self._unpromising = self._unpromising + 1 if promise < self._lanes.tie else 0
        if self._unpromising == CONVERGED_AFTER:
            self._listen(Converged(promise=promise, tie=self._lanes.tie))

    def _wait(self) -> None:
        """Waits for any job, and takes in its result."""
        number, result = next_answer(self._executor, self._beat)
        lane = self._lanes.racing(number)
        if lane is not None:
            if self._lanes.raced(lane, result):
                self._listen(TieFound(tie=self._lanes.tie))
            return
        landed = self._flights.take(number, result)
        if landed is not None:
            self._record(landed)

    def _record(self, landed: Landed) -> None:
        """Records an outcome, then tells it."""
        self._store.record(self._name, landed.lane.session, landed.trial.number, landed.outcome)
        self._tell(landed.trial, landed.outcome)

    def _tell(self, trial: Trial, outcome: Outcome) -> None:
        """Tells an outcome that is recorded, under this number or another one."""
        self._outcomes.add(trial.number, outcome)
        self._study.tell(trial, outcome)
        judged, best = self._outcomes.judged, self._outcomes.best
        self._listen(Judged(number=trial.number, outcome=outcome, judged=judged, best=best))
        if outcome.fault is not None and outcome.fault.code == DRIFTED:
            self._drifts += 1
        elif outcome.verdict in (Verdict.MEASURED, Verdict.RACED_OUT) and self._drifts < DRIFTS:
            self._drifts = 0
