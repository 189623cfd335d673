"""The driver's loop: propose, find, submit, wait for any, record, tell.

As many variants are in flight as keep the executor busy; each of its lanes is a device with a session of its own. What
is recorded in our tables comes first, what Optuna is told second; a driver that is killed between the two tells on its
return. Trials that were asked for and not judged are judged on return under the same numbers.

The incumbent is the variant that was promoted last: each candidate races against it. After every AA_EVERY candidates of
a lane it races against itself, which says how wide a tie is there.
"""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

import optuna
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState
from pydantic import Field

from autotuner.measure.tie import aa_ratio, band
from autotuner.run.executor import Executor
from autotuner.run.jobs import BuildJob, Built, CalibrationJob, JudgeJob, RaceJob
from autotuner.search.point_sampler import PointSampler, distributions
from autotuner.search.samplers import SAMPLERS
from autotuner.spaces.space import Space
from autotuner.store import Lease, Store
from autotuner.tuning.device_lane import Lane
from autotuner.tuning.promotion import takes_over
from autotuner.tuning.study_identity import study_record
from autotuner.values.errors import InfrastructureError, OracleError
from autotuner.values.known_points import KNOWN_POINTS, KnownPoints
from autotuner.values.model import Model
from autotuner.values.outcome import Calibration, Device, Heat, Outcome
from autotuner.values.terms import Terms
from autotuner.values.variant import Value, Variant
from autotuner.values.verdict import Verdict

GATE = "gate"
SEEDS = "autotuner:seeds"
RETRIES = 3
BROKEN = 12
BEAT_S = 10.0
DRIFTED = "measure.drift"
DRIFTS = 3
"""After so many measurements in a row that the thermometer refused, the machine is not what it was at calibration."""
AHEAD = 2
"""So many variants are on a device or next in its queue; more would be judged by what was known too long ago."""

CONVERGED_AFTER = 10
"""So many proposals in a row that promise less than a tie end a search that is to end when it has converged."""

AA_EVERY = 20
AA_BLOCKS = 40


class Told(StrEnum):
    """What Optuna is told of a verdict."""

    VALUE = "COMPLETE with the objective, constraint 0"
    REJECT = "COMPLETE with +inf, constraint 1"
    FAIL = "FAIL, enqueued again at most 3 times"
    NOTHING = "the sweep does not start"


OPTUNA_STATE: dict[Verdict, Told] = {
    **dict.fromkeys(Verdict, Told.REJECT),
    Verdict.MEASURED: Told.VALUE,
    Verdict.DEDUPLICATED: Told.VALUE,
    Verdict.RACED_OUT: Told.VALUE,
    Verdict.INFRA_ERROR: Told.FAIL,
    Verdict.ORACLE_ERROR: Told.NOTHING,
}


class Budget(Model):
    """When a sweep ends: so many judged variants in the study, or so many seconds of this run.

    With `until_converged` also when CONVERGED_AFTER proposals in a row promised less than a tie.
    """

    trials: int
    seconds: float = float("inf")
    until_converged: bool = False


class Started(Model):
    """A run of the driver begins, or goes on after its devices were calibrated anew."""

    study: str
    judged: int
    calibration: Calibration = Field(description="of the first lane")
    lanes: int = 1


class TieFound(Model):
    """The incumbent raced against itself."""

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
    best: float | None
    """The best objective so far."""


Point = Mapping[str, Value]
"""IMPL and the parameters of a point of a space."""

Event = Started | Judged | TieFound | Converged
Listener = Callable[[Event], None]


class _Flight(NamedTuple):
    """A trial between its proposal and its outcome."""

    trial: Trial
    variant: Variant


class Driver:
    """Runs a study until its budget is spent. One driver owns a store at a time."""

    def __init__(
        self,
        store: Store,
        space: Space,
        device: Device,
        terms: Terms,
        executor: Executor,
        sampler: str = "evolution",
        seed: int = 0,
        listen: Listener = lambda _: None,
        built_from: str = "",
        first: Sequence[Point] = (),
        environments: Sequence[Mapping[str, str]] = (),
        known_points: KnownPoints | None = None,
    ) -> None:
        """`built_from` stands for sources, compiler and reference: a study with others is another study.

        `first`: valid points of the space that a new study judges before the sampler's own. `environments`: what the
        numbers of each lane depend on; the device's own where nothing is said. `lessons`: what a new study is told of
        another one; the sampler may learn from it.
        """
        self._store, self._space, self._device = store, space, device
        self._terms, self._executor, self._listen = terms, executor, listen
        self._sampler, self._seed, self._first, self._known_points = sampler, seed, first, known_points
        self._record = study_record(space, device, terms, sampler, seed, built_from)
        self.name = self._record.name
        self._outcomes: dict[int, Outcome] = {}
        self._judged: dict[str, Outcome] = {}
        """By the variant's digest; what was lost is not among them."""
        self._losses: Counter[str] = Counter()
        self._programs: dict[str, Outcome] = {}
        self._best: float | None = None
        self._incumbent: Outcome | None = None
        self._lost_in_a_row, self._drifts = 0, 0
        self._proposer: PointSampler
        self._distributions = distributions(space)
        self._calm = 0
        """So many proposals in a row promised less than a tie."""
        self._lanes = [Lane(number) for number in range(executor.lanes)]
        self._environments = [*environments, *([device.environment] * executor.lanes)][: executor.lanes]
        self._aa: list[float] = []
        """What each race of an incumbent against itself came to."""
        self._tie = band([])
        """How wide a tie is, relative, by all of them."""
        self._beaten = time.monotonic()
        """When the lease was renewed."""
        self._flights: dict[int, _Flight] = {}
        """By the number of the job that the executor has of it."""
        self._built: list[tuple[_Flight, Built]] = []
        """Between their two jobs, the oldest first."""

    def run(self, budget: Budget) -> None:
        """Raises InputError, OracleError or InfrastructureError when the sweep cannot go on; nothing is lost then."""
        with self._store.lease() as lease, self._store.errors():
            study = self._open()
            self._begin(lease)
            try:
                self._loop(study, budget, lease)
            finally:
                self._finish()

    def _begin(self, lease: Lease) -> None:
        """Calibrates every lane and starts its session. All race against the baselines that the first one chose."""
        calibrations = self._calibrate(lease)
        baselines = calibrations[0].baselines
        for lane, found in zip(self._lanes, calibrations, strict=True):
            calibration = found.model_copy(update={"baselines": baselines})
            update = {
                "baselines": baselines,
                "ceilings": calibration.ceilings,
                "tie": self._tie,
            }
            lane.terms = self._terms.model_copy(update=update)
            lane.calm_us = [[us] for us in calibration.baseline_us]
            lane.session = self._store.start_session(self.name, calibration, self._environments[lane.number])
        self._drifts = 0
        started = Started(study=self.name, judged=self._count(), calibration=calibrations[0], lanes=len(self._lanes))
        self._listen(started)

    def _finish(self) -> None:
        for lane in self._lanes:
            self._store.finish_session(lane.session)

    def _open(self) -> Study:
        """The study, made on first use, with our outcomes read back."""
        # the sampler first: one that does not apply leaves no study
        self._proposer = SAMPLERS[self._sampler](self._space, self._seed)
        self._store.ensure_study(self._record)
        optuna.logging.set_verbosity(optuna.logging.WARNING)  # what happens is told to the listener
        study = optuna.create_study(
            storage=self._store.optuna_storage(), study_name=self.name, sampler=self._proposer, load_if_exists=True
        )
        if SEEDS not in study.user_attrs:
            for point in self._first:
                study.enqueue_trial(dict(point), skip_if_exists=True)
            if self._known_points is not None:
                study.set_user_attr(KNOWN_POINTS, self._known_points.model_dump(mode="json"))
            study.set_user_attr(SEEDS, list(self._terms.seeds))  # last: a study with seeds has what it starts from
        self._terms = self._terms.model_copy(update={"seeds": tuple(study.user_attrs[SEEDS])})
        for number, outcome in self._store.judged_numbers(self.name).items():
            self._remember(number, outcome)
        return study

    def _calibrate(self, lease: Lease) -> list[Calibration]:
        """Of every lane, side by side."""
        jobs = [self._executor.submit(CalibrationJob(terms=self._terms), lane.number) for lane in self._lanes]
        results = dict(self._wait(lease) for _ in jobs)
        return [_calibration(results.get(job)) for job in jobs]

    def _wait(self, lease: Lease) -> tuple[int, object]:
        done = None
        while done is None:
            done = self._executor.wait(BEAT_S)
            self._beat(lease)
        return done

    def _beat(self, lease: Lease) -> None:
        """Renews the lease if it is time to: results and proposals may come much faster than that."""
        if time.monotonic() - self._beaten >= BEAT_S:
            lease.beat()
            self._beaten = time.monotonic()

    # The loop ---------------------------------------------------------------------------------------------------

    def _loop(self, study: Study, budget: Budget, lease: Lease) -> None:
        until = time.monotonic() + budget.seconds
        left = self._settle(study)
        while True:
            drifted = self._drifts >= DRIFTS
            if not drifted:  # else what the executor has comes to its end first
                self._feed(study)
                self._propose(study, left, budget, until, lease)
            if self._flights or any(lane.racing is not None for lane in self._lanes):
                self._advance(study, *self._wait(lease))
            elif drifted:
                self._finish()
                self._begin(lease)
            elif not self._built:
                return

    def _propose(self, study: Study, left: list[Trial], budget: Budget, until: float, lease: Lease) -> None:
        """Starts trials while there is room in flight and the budget lasts; those that were left come first.

        A variant that was judged under another number is told at once; no other driver can have judged any meanwhile.
        """
        while self._has_room(budget) and time.monotonic() < until:
            trial = left.pop(0) if left else study.ask()
            variant = self._variant_of(trial)
            self._note_promise()
            self._beat(lease)  # some samplers take seconds a proposal
            if variant is None:  # another program enqueued what is no point of the space
                study.tell(trial, state=TrialState.FAIL)
            elif variant.digest in self._judged:
                self._announce(study, trial, self._judged[variant.digest])
            elif variant in self._variants():  # enqueued twice: it is told under the other number
                study.tell(trial, state=TrialState.FAIL)
            else:
                self._store.flush()
                job = BuildJob(variant=variant, terms=self._terms)
                self._flights[self._executor.submit(job)] = _Flight(trial, variant)

    def _has_room(self, budget: Budget) -> bool:
        """Whether one more variant may be in flight, should all the others be judged."""
        if budget.until_converged and self._calm >= CONVERGED_AFTER:
            return False
        flying = len(self._variants())
        return flying < self._executor.width and self._count() + flying < min(budget.trials, self._judgeable())

    def _note_promise(self) -> None:
        """Counts the proposals that promise less than a tie; what was enqueued promises nothing."""
        promise, self._proposer.promise = self._proposer.promise, None
        if promise is None:
            return
        self._calm = self._calm + 1 if promise < self._tie else 0
        if self._calm == CONVERGED_AFTER:
            self._listen(Converged(promise=promise, tie=self._tie))

    def _variants(self) -> list[Variant]:
        """All that are in flight."""
        return [flight.variant for flight in (*self._flights.values(), *(flight for flight, _ in self._built))]

    def _feed(self, study: Study) -> None:
        """Hands built variants to the device, no sooner than it needs them: what is known by then counts for them.

        A program that was measured is not measured again; one that is being judged is waited for.
        """
        waiting, self._built = self._built, []
        for flight, built in waiting:
            program = built.artifact.program_hash
            original = self._programs.get(program)
            lane = self._free_lane()
            if original is not None:
                self._conclude(study, flight.trial, _duplicate(built, original), self._lanes[0])
            elif lane is not None and not any(program in each.on_device.values() for each in self._lanes):
                self._judge(lane, flight, built)
            else:
                self._built.append((flight, built))

    def _free_lane(self) -> Lane | None:
        """The lane with the least to do, if it can take one more."""
        lane = min(self._lanes, key=lambda each: len(each.on_device))
        return lane if len(lane.on_device) < AHEAD else None

    def _judge(self, lane: Lane, flight: _Flight, built: Built) -> None:
        """Submits the judging of a variant, and before it the race of the incumbent against itself when it is due."""
        incumbent = self._incumbent.artifact if self._incumbent is not None else None
        if incumbent is not None and lane.since_aa >= AA_EVERY and lane.racing is None:
            race = RaceJob(artifacts=(incumbent, incumbent), terms=lane.terms_with(self._tie), blocks=AA_BLOCKS)
            lane.since_aa, lane.racing = 0, self._executor.submit(race, lane.number)
        terms = lane.terms_with(self._tie)
        number = self._executor.submit(JudgeJob(built=built, terms=terms, incumbent=incumbent), lane.number)
        self._flights[number], lane.on_device[number] = flight, built.artifact.program_hash
        lane.since_aa += 1

    def _advance(self, study: Study, number: int, result: object) -> None:
        """Takes a finished job's variant to its next station."""
        lane = next((each for each in self._lanes if number in each.on_device or number == each.racing), self._lanes[0])
        if number == lane.racing:
            self._raced_itself(lane, result)
            return
        flight = self._flights.pop(number)
        lane.on_device.pop(number, None)
        if isinstance(result, Built):
            self._built.append((flight, result))
        elif isinstance(result, Outcome):
            lane.note_calm(result.measurement)
            self._conclude(study, flight.trial, result, lane)
        else:
            raise InfrastructureError(f"a variant's job gave no outcome: {result}")

    def _raced_itself(self, lane: Lane, result: object) -> None:
        """A race that a disturbed machine has spoilt says nothing; the next one is soon."""
        lane.racing = None
        if isinstance(result, Heat) and not result.faults:
            self._store.record_heat(self.name, "aa", result, session_id=lane.session)
            self._aa.append(aa_ratio(result, self._terms.objective))
            self._tie = band(self._aa)
            self._listen(TieFound(tie=self._tie))

    def _conclude(self, study: Study, trial: Trial, outcome: Outcome, lane: Lane) -> None:
        """Records the outcome, then tells it."""
        self._store.record(self.name, lane.session, trial.number, outcome)
        self._announce(study, trial, outcome)

    def _announce(self, study: Study, trial: Trial, outcome: Outcome) -> None:
        """Tells an outcome that is recorded, under this number or another one."""
        self._remember(trial.number, outcome)
        self._tell(study, trial, outcome)
        self._listen(Judged(number=trial.number, outcome=outcome, judged=self._count(), best=self._best))
        if outcome.fault is not None and outcome.fault.code == DRIFTED:
            self._drifts += 1
        elif outcome.verdict in (Verdict.MEASURED, Verdict.RACED_OUT) and self._drifts < DRIFTS:
            self._drifts = 0

    def _judgeable(self) -> int:
        """How many points can be judged: all but those whose process was lost in every try."""
        lost = [digest for digest, count in self._losses.items() if count > RETRIES and digest not in self._judged]
        return len(self._space) - len(lost)

    def _settle(self, study: Study) -> list[Trial]:
        """Settles the trials that an earlier driver left running; returns those that are still to be judged.

        What has an outcome is told. A trial whose parameters are not whole was killed while Optuna was noting them
        down; nothing was done for it, and it fails.
        """
        left: list[Trial] = []
        for frozen in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            trial = _reopen(study, frozen)
            if frozen.number in self._outcomes:
                self._tell(study, trial, self._outcomes[frozen.number])
            elif self._space.index_of(frozen.params) is None:
                study.tell(trial, state=TrialState.FAIL)
            else:
                left.append(trial)
        return left

    def _variant_of(self, trial: Trial) -> Variant | None:
        """The variant of a trial, whose parameters are noted down if they are not yet; None if it has no valid point.

        Optuna would ask for each parameter by itself and check it several times; a sampler here proposes whole points.
        """
        point = trial.params
        if not point:
            point = trial.relative_params
            if self._space.index_of(point) is None:
                return None
            self._store.optuna_storage().set_trial_params(trial._trial_id, point, self._distributions)
        return Variant.of(self._space.file.family, self._space.file.backend, point)

    def _remember(self, number: int, outcome: Outcome) -> None:
        self._outcomes[number] = outcome
        if outcome.verdict.judges:
            self._judged[outcome.variant.digest] = outcome
        else:
            self._losses[outcome.variant.digest] += 1
        if outcome.verdict in (Verdict.MEASURED, Verdict.RACED_OUT) and outcome.artifact is not None:
            self._programs.setdefault(outcome.artifact.program_hash, outcome)
        if outcome.verdict == Verdict.MEASURED:
            self._best = min(outcome.objective, self._best if self._best is not None else outcome.objective)
            if takes_over(outcome, self._incumbent):
                self._incumbent = outcome

    def _count(self) -> int:
        return len(self._judged)

    def _tell(self, study: Study, trial: Trial, outcome: Outcome) -> None:
        """Tells Optuna, as OPTUNA_STATE says."""
        told = OPTUNA_STATE[outcome.verdict]
        if told == Told.FAIL:
            self._fail(study, trial, outcome)
            return
        self._lost_in_a_row = 0
        with warnings.catch_warnings():  # on a second try after a kill the constraint may be there already
            warnings.simplefilter("ignore")
            trial.set_constraint(GATE, 0.0 if told == Told.VALUE else 1.0)
        study.tell(trial, outcome.objective)

    def _fail(self, study: Study, trial: Trial, outcome: Outcome) -> None:
        """Fails the trial; its point is enqueued again, at most RETRIES times, as the sampler does not come back to it.

        The order matters: a driver that is killed between the two enqueues the point twice, and the second trial is
        answered from the store; the other way round the point would be lost.
        """
        if self._losses[outcome.variant.digest] <= RETRIES:
            study.enqueue_trial(outcome.variant.point)
        study.tell(trial, state=TrialState.FAIL)
        self._lost_in_a_row += 1
        if self._lost_in_a_row >= BROKEN:
            raise InfrastructureError(f"{BROKEN} trials in a row could not be judged; the machine needs a look")


def _calibration(result: object) -> Calibration:
    """Raises OracleError when a reference breaks its own tolerance, and InfrastructureError when there is no result."""
    if not isinstance(result, Calibration):
        raise InfrastructureError(f"calibration gave no result: {result}")
    if result.oracle_fault is not None:
        raise OracleError(result.oracle_fault)
    return result


def _duplicate(built: Built, original: Outcome) -> Outcome:
    """The outcome of a variant whose program is the original's: it shares the measurement."""
    assert original.artifact is not None  # what was measured was built
    return Outcome(
        variant=built.artifact.variant,
        verdict=Verdict.DEDUPLICATED,
        artifact=built.artifact,
        measurement=original.measurement,
        original=original.artifact.digest,
        seconds={"build": built.seconds},
    )


def _reopen(study: Study, frozen: FrozenTrial) -> Trial:
    """A handle to a trial that is running already."""
    return Trial(study, frozen._trial_id)
