"""A run of a study: propose, find, submit, wait for any, record, tell.

As many variants are in flight as keep the executor busy (`flights`), each device has a lane (`lanes`), and what
the study has found so far is in mind (`outcomes`). An outcome is recorded in our tables first and told to Optuna
second (`optuna_study`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from optuna.trial import Trial
from pydantic import Field

from autotuner.run.executor import Beat, Executor, Heartbeat, next_answer
from autotuner.run.jobs import Result
from autotuner.store import Store
from autotuner.tuning import optuna_marks
from autotuner.tuning.finals.retrials import leased
from autotuner.tuning.run.calm import Calm, CalmWatch, Caution, Protest, Waiting, fastest_baselines
from autotuner.tuning.run.flights import Flights, Landed, deadly
from autotuner.tuning.run.lanes import DeviceLanes
from autotuner.tuning.run.optuna_study import OptunaStudy
from autotuner.tuning.run.outcomes import Outcomes
from autotuner.tuning.run.plan import Plan
from autotuner.values import program
from autotuner.values.model import Model
from autotuner.values.outcome import Calibration, Outcome
from autotuner.values.verdict import Fault, Verdict

program.consists_of(__name__)

PROTEST_S = 60.0
"""Seconds between two looks whether the machine is calm again, while a run works under protest."""
CONVERGED_AFTER = 10
"""Proposals in a row, each promising less than a tie, after which a search has converged."""
HINDSIGHT = "the baseline beside it took longer than it does on a calm machine, as a later calibration has shown"
"""Why a result of an earlier session is set aside."""


class Budget(Model):
    """When a run ends."""

    trials: int = Field(description="judged variants of the study, those of earlier runs included")
    seconds: float = Field(
        default=float("inf"),
        description="of this run, its calibration included. Nothing more is begun once what is in flight will take the"
        " rest of them, by the pace so far; that is judged in any case",
    )
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


class UnderWay(Model):
    """What is being done now, told when it changes."""

    building: tuple[int, ...] = Field(description="trials")
    judging: tuple[int, ...]
    racing: bool = Field(description="the best variant races against itself")


Event = Started | Judged | UnderWay | TieFound | Converged | Waiting | Calm | Protest
Listener = Callable[[Event], None]


class Driver:
    """Runs a study until its budget is spent. One driver owns a store at a time."""

    def __init__(self, store: Store, executor: Executor, plan: Plan, listen: Listener = lambda _: None) -> None:
        self._store, self._executor, self._plan, self._listen = store, executor, plan, listen
        self.name = plan.record.name
        """Of the study."""

    def run(self, budget: Budget, caution: Caution | None = None, beat: Beat = lambda: None) -> None:
        """Raises InputError, OracleError or InfrastructureError when the sweep cannot go on; nothing is lost then.

        `beat` is called whenever the lease is renewed. What it raises ends the run in good order: what is in flight is
        judged by the next one, under the same numbers.
        """
        with leased(self._store, self.name, beat) as renew:
            until = time.monotonic() + budget.seconds
            run = _Run(self._store, self._executor, self._plan, caution or Caution(), self._listen, renew)
            run.begin(budget)
            try:
                run.loop(budget, until)
            finally:
                run.finish()


class _Run:
    """One run of a driver, while it holds the lease."""

    def __init__(
        self, store: Store, executor: Executor, plan: Plan, caution: Caution, listen: Listener, beat: Heartbeat
    ) -> None:
        self._store, self._executor, self._listen, self._beat = store, executor, listen, beat
        self._name, self._points = plan.record.name, len(plan.space)
        self._outcomes = Outcomes(lambda number: self._counted(number, store.outcome(self._name, number)))
        self._study = OptunaStudy(store, plan, self._outcomes)
        self._conditions = plan.conditions.model_copy(update={"seeds": self._study.seeds})
        store.record_unwritten(self._name)
        self._outcomes.begin_anew(self._recorded())
        self._study.leave_out(self._outcomes.disturbed)  # Optuna may have been told values
        environments = [*plan.environments, *([plan.device.environment] * executor.lanes)]
        self._lanes = DeviceLanes(store, executor, self._name, self._conditions, environments)
        remembered = fastest_baselines(store, plan.record, environments[0])
        self._calm = CalmWatch(self._lanes, remembered, caution, plan.who_disturbs, listen, beat)
        self._flights = Flights(executor, self._lanes, self._outcomes)
        self._doubtful = False
        """Whether the machine has to be looked at before anything else is measured."""
        self._look_at = 0.0
        """When it is looked at next under protest, on the monotonic clock."""
        self._under_way: UnderWay | None = None
        """What was told last."""
        self._since, self._landed = 0.0, 0
        """When judging began, on the monotonic clock less what was waited for a calm machine, and how many were judged
        since."""
        self._unpromising = 0
        """Proposals in a row that promised less than a tie."""

    def _recorded(self) -> Iterator[tuple[int, Outcome]]:
        """What the store has, by number."""
        for number, outcome in self._store.outcomes(self._name):
            yield number, self._counted(number, outcome)

    def _counted(self, number: int, outcome: Outcome) -> Outcome:
        """The outcome with the objective that counts."""
        return outcome.corrected(self._study.corrections.get(number))

    def begin(self, budget: Budget) -> None:
        """As `_begin`, for the first time. Where nothing is left to judge no calm machine is waited for."""
        if not self._has_room(budget):
            self._calm.patience_s = 0.0
        self._begin()

    def _begin(self) -> None:
        """Calibrates the devices and starts their sessions."""
        found = self._calm.calibrated()
        if self._calm.protest is None:
            self._doubt_earlier(found[0])
        self._lanes.begin(found, self._calm.calm_us, self._calm.slow_us)
        self._look_at = time.monotonic() + PROTEST_S
        judged, lanes = self._outcomes.judged, len(self._lanes)
        self._listen(Started(study=self._name, judged=judged, calibration=found[0], lanes=lanes))

    def _doubt_earlier(self, calibration: Calibration) -> None:
        """Sets aside what was measured beside a baseline that took longer than it does in any race on a calm machine,
        as is known by now: a first calibration has nothing to be compared with."""
        # a calibration may differ by the drift from the best one, and a race from its calibration
        most = [(1 + calibration.drift) ** 2 * us for us in self._calm.calm_us]

        def doubtful(baseline_us: tuple[float, ...]) -> bool:
            return any(found > us for found, us in zip(baseline_us, most, strict=False))

        found = self._outcomes.timed_beside(doubtful)
        if found:
            self._store.doubt(self._name, found, HINDSIGHT)
            self._outcomes.begin_anew(self._recorded())
            self._study.leave_out(found)
            optuna_marks.mark(self._store, self._name)

    def finish(self) -> None:
        """Ends the sessions in good order."""
        self._lanes.finish()

    def loop(self, budget: Budget, until: float) -> None:
        """Judges variants until the budget is spent, at `until` on the monotonic clock, and nothing is in flight, nor
        left by an earlier driver. Waiting for a calm machine comes on top."""
        self._since = time.monotonic() - self._calm.waited_s
        for trial, variant in self._study.settle():
            assert variant is not None  # its parameters are whole
            self._record(Landed(trial, deadly(variant), self._lanes.first))
        self._race_again()
        while True:
            has_time = self._all_judged_at() < until + self._calm.waited_s
            if not self._doubtful:  # else the jobs under way come to their end first
                for duplicate in self._flights.feed():
                    self._record(duplicate)
                while (has_time or self._study.has_left) and self._has_room(budget):
                    self._propose()
                    has_time = self._all_judged_at() < until + self._calm.waited_s
            if self._flights.are_under_way or self._lanes.is_racing:
                self._wait()
            elif self._doubtful:
                self._look()
            elif not len(self._flights) and not (has_time and self._is_calm_at_last()):
                self._study.put_back()
                return

    def _all_judged_at(self) -> float:
        """When what is in flight will be judged, about, on the monotonic clock: by the pace so far. Until a first one
        was judged, now."""
        now = time.monotonic()
        pace_s = (now - self._since - self._calm.waited_s) / self._landed if self._landed else 0.0
        return now + len(self._flights) * pace_s

    def _look(self) -> None:
        """Goes on once the machine is calm; calibrates anew where it was not at calibration, or will not be soon."""
        protests = self._calm.protest is not None
        if self._calm.looks_calm() if protests else not self._calm.settled():
            self.finish()
            self._begin()
        self._doubtful, self._look_at = False, time.monotonic() + PROTEST_S
        self._race_again()

    def _is_calm_at_last(self) -> bool:
        """At the end of a run under protest: whether the machine is calm, so that what was set aside can be raced."""
        if self._calm.protest is None or not self._outcomes.set_aside:
            return False
        self._look()
        return self._calm.protest is None

    def _race_again(self) -> None:
        """Enqueues what was measured on a disturbed machine alone, if it is calm now."""
        if self._calm.protest is None:
            self._study.race_again(self._outcomes.set_aside)

    def _has_room(self, budget: Budget) -> bool:
        """Whether one more variant may be in flight, should all the others be judged."""
        if budget.until_converged and self._unpromising >= CONVERGED_AFTER:
            return False
        if len(self._flights) and self._study.wants_nothing_beside:
            return False
        flying, most = len(self._flights), min(budget.trials, self._outcomes.judgeable(self._points))
        # a calm machine takes up again what was set aside, and judges it; under protest each is measured once
        settled = self._outcomes.judged + (len(self._outcomes.set_aside) if self._calm.protest is not None else 0)
        return flying < self._executor.width and settled + flying < most

    def _propose(self) -> None:
        """Starts a trial. A variant that was judged under another number is told at once; no other driver can have
        judged any meanwhile."""
        trial, variant = self._study.propose()
        self._note_promise()
        self._beat()  # some samplers take seconds a proposal
        known = self._outcomes.tell_again(trial.number, variant) if variant is not None else None
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
        self._tell_under_way()
        number, result = next_answer(self._executor, self._beat)
        lane = self._lanes.racing(number)
        if lane is not None:
            if self._lanes.raced(lane, result):
                self._listen(TieFound(tie=self._lanes.tie))
            self._doubt(result)
            return
        landed = self._flights.take(number, result)
        if landed is not None:
            self._landed += 1
            self._record(landed)
            self._doubt(landed.outcome)

    def _tell_under_way(self) -> None:
        building, judging = self._flights.stages
        now = UnderWay(building=building, judging=judging, racing=self._lanes.is_racing)
        if now != self._under_way:
            self._under_way = now
            self._listen(now)

    def _doubt(self, result: Result) -> None:
        """Has the machine looked at after a race that it disturbed, and from time to time under protest."""
        if self._calm.protest is not None:
            self._doubtful = time.monotonic() >= self._look_at
        elif isinstance(result, Outcome | Fault) and result.verdict == Verdict.DISTURBED:
            self._doubtful = True
            if isinstance(result, Outcome):
                self._outcomes.refuse(result.variant)

    def _record(self, landed: Landed) -> None:
        """Records an outcome, then tells it."""
        self._store.record(self._name, landed.lane.session, landed.trial.number, landed.outcome)
        self._outcomes.add(landed.trial.number, landed.outcome)
        self._tell(landed.trial, landed.outcome)

    def _tell(self, trial: Trial, outcome: Outcome) -> None:
        """Tells an outcome that is recorded, under this number or another one."""
        self._study.tell(trial, outcome)
        judged, best = self._outcomes.judged, self._outcomes.best
        self._listen(Judged(number=trial.number, outcome=outcome, judged=judged, best=best))
