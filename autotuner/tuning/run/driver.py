"""A run of a study: propose, find, submit, wait for any, record, tell.

As many variants are in flight as keep the executor busy, each device has a lane (`flights`), and what the study has
found so far is in mind (`outcomes`). An outcome is recorded in our tables first and told to Optuna second
(`optuna_study`).
"""

import time
from collections.abc import Callable

from optuna.trial import Trial
from pydantic import Field

from autotuner.run.executor import Beat, Executor, Heartbeat, next_answer
from autotuner.run.jobs import faults_in
from autotuner.store import Store
from autotuner.tuning import optuna_marks
from autotuner.tuning.finals.retrials import leased
from autotuner.tuning.run.flights import DeviceLanes, Flights, Landed, deadly
from autotuner.tuning.run.optuna_study import OptunaStudy
from autotuner.tuning.run.outcomes import Outcomes
from autotuner.tuning.run.plan import Plan
from autotuner.tuning.run.waiting import Waited, Waiting, wait_until_quiet
from autotuner.values import program
from autotuner.values.errors import OutOfTimeError
from autotuner.values.model import Model
from autotuner.values.outcome import Artifact, Calibration, Outcome
from autotuner.values.variant import Variant
from autotuner.values.verdict import Fault

program.consists_of(__name__)

CONVERGED_AFTER = 10
"""Proposals in a row, each promising less than a tie, after which a search has converged."""
LOOK_S = 30.0
"""Seconds between two looks at who disturbs, where samples are held up."""


class Budget(Model):
    """When a run ends."""

    trials: int = Field(description="judged variants of the study, those of earlier runs included")
    seconds: float = Field(
        default=float("inf"),
        description="of this run, its calibration included. Nothing more is begun once what is in flight will take the"
        " rest of them, by the pace so far; what is in flight then is given up once something has a latency",
    )
    at_most_s: float = Field(
        default=float("inf"),
        description="of this run where nothing has a latency: so long it goes on, and all is given up after that",
    )
    until_converged: bool = Field(default=False, description="also when the search has converged")
    quiet_within_s: float = Field(default=0.0, description="for so long a quiet machine is waited for at the start")


class Started(Model):
    """A run of the driver begins."""

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


Event = Started | Judged | UnderWay | TieFound | Converged | Waiting | Waited
Listener = Callable[[Event], None]


class Driver:
    """Runs a study until its budget is spent. One driver owns a store at a time."""

    def __init__(self, store: Store, executor: Executor, plan: Plan, listen: Listener = lambda _: None) -> None:
        self._store, self._executor, self._plan, self._listen = store, executor, plan, listen
        self.name = plan.record.name
        """Of the study."""
        self.budget: Budget
        """Of the run that goes on; it may be changed meanwhile."""

    def run(self, budget: Budget, beat: Beat = lambda: None) -> bool:
        """Whether it came to an end by itself. Else its time was over, and the executor is still at work on what was in
        flight: the next run judges that, under the same numbers.

        `beat` is called whenever the lease is renewed. What it raises ends the run in the same good order. Raises
        InputError, OracleError or InfrastructureError when the sweep cannot go on; nothing is lost then.
        """
        began, self.budget = time.monotonic(), budget
        run: _Run | None = None

        def over() -> float:
            has_best = run is not None and run.has_best
            return began + (self.budget.seconds if has_best else self.budget.at_most_s)

        with leased(self._store, self.name, beat, over) as renew:
            run = _Run(self._store, self._executor, self._plan, self._listen, renew)
            try:
                run.begin(budget)
                run.loop(lambda: self.budget, over)
            except OutOfTimeError:
                return False
            finally:
                run.finish()
        return True


class _Run:
    """One run of a driver, while it holds the lease."""

    def __init__(self, store: Store, executor: Executor, plan: Plan, listen: Listener, beat: Heartbeat) -> None:
        self._store, self._executor, self._listen, self._beat = store, executor, listen, beat
        self._plan = plan
        self._who_disturbs, self._who, self._look_at = plan.who_disturbs, "", 0.0
        """What says who disturbs, what it said last, and when it is asked again, on the monotonic clock."""
        self._name, self._points = plan.record.name, len(plan.space)
        self._outcomes = Outcomes(lambda number: self._counted(number, store.outcome(self._name, number)))
        self._study = OptunaStudy(store, plan, self._outcomes)
        self._conditions = plan.conditions.model_copy(update={"seeds": self._study.seeds})
        store.record_unwritten(self._name)
        for number, outcome in self._store.outcomes(self._name):
            self._outcomes.add(number, self._counted(number, outcome))
        environments = [*plan.environments, *([plan.device.environment] * executor.lanes)]
        self._lanes = DeviceLanes(store, executor, self._name, self._conditions, environments)
        self._flights = Flights(executor, self._lanes, self._outcomes)
        self._under_way: UnderWay | None = None
        """What was told last."""
        self._since, self._landed = 0.0, 0
        """When judging began, on the monotonic clock, and how many were judged since."""
        self._unpromising = 0
        """Proposals in a row that promised less than a tie."""

    def _counted(self, number: int, outcome: Outcome) -> Outcome:
        """The outcome with the objective that counts."""
        return outcome.corrected(self._study.corrections.get(number))

    def begin(self, budget: Budget) -> None:
        """Calibrates the devices and starts their sessions, on a quiet machine where one is waited for."""
        within_s = budget.quiet_within_s if self._has_room(budget) else 0.0
        wait_until_quiet(self._who_disturbs, within_s, self._listen, self._beat)
        found = self._lanes.calibrate(self._beat, self._ahead(), budget.at_most_s)
        self._lanes.begin(found)
        self._study.bound(found[0])
        judged, lanes = self._outcomes.judged, len(self._lanes)
        self._listen(Started(study=self._name, judged=judged, calibration=found[0], lanes=lanes))

    def _ahead(self) -> list[Variant]:
        """What a new study begins with and is built while the devices are calibrated: one for each builder at most."""
        plan = self._plan
        if not plan.builds_ahead or self._outcomes.judged:
            return []
        points = [*plan.start.first, *(plan.space.point(place) for place in plan.start.hints)]
        file = plan.space.file
        return [Variant.of(file.family, file.backend, point) for point in points[: self._executor.builders]]

    def finish(self) -> None:
        """Ends the sessions in good order."""
        self._lanes.finish()

    @property
    def has_best(self) -> bool:
        """Whether something has a latency."""
        return self._outcomes.best is not None

    def loop(self, budget: Callable[[], Budget], until: Callable[[], float]) -> None:
        """Judges variants until the budget is spent, at the moment `until` on the monotonic clock, and nothing is in
        flight, nor left by an earlier driver."""
        self._since = time.monotonic()
        for trial, variant in self._study.settle():
            assert variant is not None  # its parameters are whole
            self._record(Landed(trial, deadly(variant), self._lanes.first))
        while True:
            has_time = self._all_judged_at() < until()
            for duplicate in self._flights.feed():
                self._record(duplicate)
            while (has_time or self._study.has_left) and self._has_room(budget()):
                self._propose()
                has_time = self._all_judged_at() < until()
            if self._flights.are_under_way or self._lanes.is_racing:
                self._wait()
            elif not len(self._flights):
                self._study.put_back()
                return

    def _all_judged_at(self) -> float:
        """When what is in flight will be judged, about, on the monotonic clock: by the pace so far. Until a first one
        was judged, now."""
        now = time.monotonic()
        pace_s = (now - self._since) / self._landed if self._landed else 0.0
        return now + len(self._flights) * pace_s

    def _has_room(self, budget: Budget) -> bool:
        """Whether one more variant may be in flight, should all the others be judged."""
        if budget.until_converged and self._unpromising >= CONVERGED_AFTER:
            return False
        if len(self._flights) and self._study.wants_nothing_beside:
            return False
        flying, most = len(self._flights), min(budget.trials, self._outcomes.judgeable(self._points))
        ahead = self._landed or self._plan.builds_ahead  # else the first one would wait for builds of others
        width = self._executor.width if ahead else self._executor.builders
        return flying < width and self._outcomes.judged + flying < most

    def _propose(self) -> None:
        """Starts a trial. A variant that was judged under another number is told at once; no other driver can have
        judged any meanwhile."""
        trial, variant = self._study.propose()
        self._note_promise()
        self._beat.renew()  # some samplers take seconds a proposal
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
            if lane.raced is not None and any(fault.verdict.judges for fault in faults_in(result)):
                self._flights.suspect(lane.raced, lane)
            return
        landed = self._flights.take(number, result)
        for artifact, fault in self._flights.convicted():
            self._revoke(artifact, fault)
        if landed is not None:
            self._landed += 1
            self._record(landed._replace(outcome=landed.outcome.disturbed_by(self._disturber(landed.outcome))))

    def _revoke(self, artifact: Artifact, fault: Fault) -> None:
        """Takes the latency of an incumbent back that was found out when it was judged again."""
        number = self._outcomes.recorded(artifact)
        if number is None:
            return
        reason = f"as the incumbent it cost others their process; judged again, alone: {fault.code}, {fault.detail}"
        self._store.revoke(self._name, number, reason)
        optuna_marks.mark(self._store, self._name)

    def _tell_under_way(self) -> None:
        building, judging = self._flights.stages
        now = UnderWay(building=building, judging=judging, racing=self._lanes.is_racing)
        if now != self._under_way:
            self._under_way = now
            self._listen(now)

    def _disturber(self, outcome: Outcome) -> str:
        """Who disturbs, where samples of the outcome were held up; asked now and then, as it takes half a second."""
        found = outcome.measurement
        if found is not None and (found.held_up or found.unseen) and time.monotonic() >= self._look_at:
            self._who = self._who_disturbs()
            self._look_at = time.monotonic() + LOOK_S
        return self._who

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
