"""The study as Optuna keeps it: what the sampler proposes is asked for here, and every outcome is told here.

Our tables come first: an outcome is told once it is recorded. A driver that is killed between the two tells on its
return. Trials that were asked for and not judged are judged on return under the same numbers.
"""

import warnings
from enum import StrEnum

import optuna
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState

from autotuner.search.point_sampler import PointSampler, distributions
from autotuner.search.samplers import SAMPLERS
from autotuner.store import Store
from autotuner.tuning import optuna_marks
from autotuner.tuning.finals import standings
from autotuner.tuning.possible import bounds
from autotuner.tuning.run.outcomes import Outcomes
from autotuner.tuning.run.plan import Plan
from autotuner.values.errors import InfrastructureError
from autotuner.values.known_points import HINTS, KNOWN_POINTS
from autotuner.values.outcome import Calibration, Outcome
from autotuner.values.variant import Variant
from autotuner.values.verdict import Verdict

GATE = "gate"
"""The constraint of a trial: 0 where the variant has a latency, 1 where it was rejected."""
SEEDS = "autotuner:seeds"
"""The attribute of a study that holds the seeds of its inputs."""
DEATHS = "autotuner:deaths"
"""The attribute of a trial that counts the drivers that were killed while it was under way."""
ALONE = "autotuner:alone"
"""The attribute of a trial that was judged with nothing else in flight."""
SUSPECTED, BLAMED = 2, 3
"""Such deaths after which a trial is judged alone, and after which, if that was so, it counts as what killed them."""
BROKEN = 12
"""Trials in a row that could not be judged, after which the machinery counts as broken."""


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
    Verdict.DISTURBED: Told.FAIL,
    Verdict.INFRA_ERROR: Told.FAIL,
    Verdict.ORACLE_ERROR: Told.NOTHING,
}


Proposal = tuple[Trial, Variant | None]
"""A trial that Optuna has begun, with its variant; None where its parameters are no valid point."""


class OptunaStudy:
    """A study in Optuna's tables, with its sampler."""

    def __init__(self, store: Store, plan: Plan, outcomes: Outcomes) -> None:
        """Opens the study, and makes it on first use. `outcomes` are those of the same study.

        Raises InputError when the sampler does not apply to the space; nothing is made then.
        """
        self._store, self._space, self._outcomes = store, plan.space, outcomes
        self._distributions = distributions(plan.space)
        self._lost_in_a_row = 0
        self._sampler: PointSampler = SAMPLERS[plan.sampler](plan.space, plan.seed)
        store.ensure_study(plan.record)
        self.corrections = standings.corrections(store, plan.record.name)
        """Objectives that count instead of what was told, by the trial's number."""
        self._sampler.correct(self.corrections)
        self._died = store.died(plan.record.name)
        """Whether an earlier driver was killed. One that was stopped in good order says nothing of its trials."""
        store.optuna_storage().forget(plan.record.name)
        optuna.logging.set_verbosity(optuna.logging.ERROR)  # what happens is told to the driver's listener
        self._study = optuna.create_study(
            storage=store.optuna_storage(), study_name=plan.record.name, sampler=self._sampler, load_if_exists=True
        )
        if SEEDS not in self._study.user_attrs:
            for point in plan.start.first:
                self._study.enqueue_trial(dict(point), skip_if_exists=True)
            if plan.start.known_points is not None:
                self._study.set_user_attr(KNOWN_POINTS, plan.start.known_points.model_dump(mode="json"))
            if plan.start.hints:
                self._study.set_user_attr(HINTS, list(plan.start.hints.items()))
            # last: a study with seeds has what it starts from
            self._study.set_user_attr(SEEDS, list(plan.conditions.seeds))
        optuna_marks.describe(self._study, plan.record)
        optuna_marks.mark(store, plan.record.name)
        self._left: list[Trial] = []
        """Trials that an earlier driver left without an outcome."""
        self._is_alone = False

    def bound(self, calibration: Calibration) -> None:
        """Tells the sampler what each implementation cannot go below here."""
        self._sampler.bound(bounds(self._space, calibration))

    @property
    def seeds(self) -> tuple[int, int, int, int]:
        """Of the inputs: those that the study was made with."""
        a, b, c, d = self._study.user_attrs[SEEDS]
        return a, b, c, d

    def propose(self) -> Proposal:
        """The next trial; those that an earlier driver left come first."""
        self._is_alone = self._next_is_suspected
        trial = self._left.pop(0) if self._left else self._study.ask()
        if self._is_alone:
            trial.set_user_attr(ALONE, True)
        return trial, self._variant_of(trial)

    @property
    def wants_nothing_beside(self) -> bool:
        """Whether the last proposal, or the next one, is to be judged with nothing else in flight."""
        return self._is_alone or self._next_is_suspected

    @property
    def _next_is_suspected(self) -> bool:
        return bool(self._left) and self._left[0].user_attrs.get(DEATHS, 0) >= SUSPECTED

    @property
    def has_left(self) -> bool:
        """Whether an earlier driver left trials that were not proposed again yet."""
        return bool(self._left)

    def put_back(self) -> None:
        """Ends the trials that are left where no more are to be judged; their points come first in the next run."""
        while self._left:
            trial = self._left.pop()
            self._study.enqueue_trial(trial.params)
            self.fail(trial)

    def promise(self) -> float | None:
        """The improvement that the last proposal was expected to be; None of an enqueued point, or asked twice."""
        promise, self._sampler.promise = self._sampler.promise, None
        return promise

    def tell(self, trial: Trial, outcome: Outcome) -> None:
        """Tells Optuna, as OPTUNA_STATE says, an outcome that is among the study's outcomes."""
        told = OPTUNA_STATE[outcome.verdict]
        for key, value in optuna_marks.of_outcome(outcome).items():
            trial.set_user_attr(key, value)
        if told == Told.FAIL:
            self._lose(trial, outcome)
            return
        self._lost_in_a_row = 0
        with warnings.catch_warnings():  # on a second try after a kill the constraint may be there already
            warnings.simplefilter("ignore")
            trial.set_constraint(GATE, 0.0 if told == Told.VALUE else 1.0)
        self._study.tell(trial, outcome.objective)

    def fail(self, trial: Trial) -> None:
        """Ends a trial that has no outcome of its own."""
        self._study.tell(trial, state=TrialState.FAIL)

    def settle(self) -> list[Proposal]:
        """Settles the trials that an earlier driver left running; those that have killed their drivers.

        What has an outcome is told. A trial whose parameters are not whole was killed while Optuna was noting them
        down; nothing was done for it, and it fails. The others are proposed again, but for those that were under way in
        three drivers that were killed, and alone in the last one.
        """
        blamed = []
        for frozen in self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            trial = _reopen(self._study, frozen)
            outcome = self._outcomes.of_trial(frozen.number)
            if outcome is not None:
                self.tell(trial, outcome)
            elif self._space.index_of(frozen.params) is None:
                self._drop(frozen)
            elif self._has_killed(trial):
                blamed.append((trial, self._variant_of(trial)))
            else:
                self._left.append(trial)
        return blamed

    def _drop(self, frozen: FrozenTrial) -> None:
        """Fails a trial without parameters. A point that it was given is enqueued again, in the order of `_lose`: to
        the sampler it was asked for."""
        given = frozen.system_attrs.get("fixed_params")
        if given is not None and self._space.index_of(given) is not None:
            self._study.enqueue_trial(given)
        self.fail(_reopen(self._study, frozen))

    def _has_killed(self, trial: Trial) -> bool:
        """Counts one more driver that was killed, if it was; whether the trial must have done it."""
        known = trial.user_attrs
        if not self._died:
            return False
        deaths = known.get(DEATHS, 0) + 1
        trial.set_user_attr(DEATHS, deaths)
        return bool(deaths >= BLAMED and known.get(ALONE))

    def _lose(self, trial: Trial, outcome: Outcome) -> None:
        """Fails the trial; its point is enqueued again, as the sampler does not come back to it.

        The order matters: a driver that is killed between the two enqueues the point twice, and the second trial is
        answered from the store; the other way round the point would be lost.
        """
        if self._outcomes.is_tried_again(outcome.variant):
            self._study.enqueue_trial(outcome.variant.point)
        self.fail(trial)
        self._lost_in_a_row += 1
        if self._lost_in_a_row >= BROKEN:
            raise InfrastructureError(f"{BROKEN} trials in a row could not be judged; the machine needs a look")

    def _variant_of(self, trial: Trial) -> Variant | None:
        """The variant of a trial, whose parameters are noted down if they are not yet.

        Optuna would ask for each parameter by itself and check it several times; a sampler here proposes whole points.
        """
        point = trial.params
        if not point:
            point = trial.relative_params
            if self._space.index_of(point) is None:
                return None
            self._store.optuna_storage().set_trial_params(trial._trial_id, point, self._distributions)
        return Variant.of(self._space.file.family, self._space.file.backend, point)


def _reopen(study: Study, frozen: FrozenTrial) -> Trial:
    return Trial(study, frozen._trial_id)
