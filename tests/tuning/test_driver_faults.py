"""The driver's loop when it is killed, loses processes, or has a device that fails."""

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

from autotuner.run.jobs import AnyJob, JudgeJob, Result
from autotuner.store import Store
from autotuner.store.optuna_storage import DriverStorage
from autotuner.tuning.finals import standings
from autotuner.tuning.run.driver import Budget
from autotuner.tuning.run.plan import Start
from autotuner.values.conditions import Conditions
from autotuner.values.errors import InfrastructureError
from autotuner.values.outcome import Artifact, Calibration, Outcome, Say
from autotuner.values.variant import Value, Variant
from autotuner.values.verdict import Fault, Verdict
from tests.helpers import simulated
from tests.helpers.driven import SMALL, WIDE, Shuffled, at_any_width, driver, swept, trials_of
from tests.helpers.fake_line import FakeLine
from tests.helpers.inline_executor import InlineExecutor


class Killed(BaseException):
    """Stands for kill -9: nothing may catch it."""


def killed(*_args: object, **_kwargs: object) -> None:
    raise Killed


def test_a_kill_before_the_telling_loses_and_repeats_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = simulated.backend()
    sweep = driver(store, backend)
    driver(store, backend).run(Budget(trials=5))
    with monkeypatch.context() as patch:
        patch.setattr(optuna.Study, "tell", killed)
        with pytest.raises(Killed):
            sweep.run(Budget(trials=20))
    driver(store, backend).run(Budget(trials=6))  # the sixth is judged already: only the telling is left
    assert len(backend.built) == 6
    assert {trial.state for trial in trials_of(store, sweep.name)} == {TrialState.COMPLETE}
    driver(store, backend).run(Budget(trials=20))
    assert len(backend.built) == 20
    assert {trial.state for trial in trials_of(store, sweep.name)} == {TrialState.COMPLETE}


class Dying(Shuffled):
    """Its driver is killed when it waits for the last of some jobs."""

    def __init__(self, backend: FakeLine, width: int, jobs: int) -> None:
        super().__init__(backend, width)
        self._jobs = jobs

    def wait(self, timeout: float | None = None) -> tuple[int, Result] | None:
        self._jobs -= 1
        if self._jobs == 0:
            raise Killed
        return super().wait(timeout)


@pytest.mark.sampled(3)
@at_any_width
@pytest.mark.parametrize("jobs", [2, 4, 9, 20])
def test_a_kill_before_the_judging_judges_the_same_trials(store: Store, width: int, jobs: int) -> None:
    """What was recorded is not built again; what was in flight is judged under its number."""
    dying = Dying(simulated.backend(), width, jobs)
    sweep = driver(store, dying)
    with pytest.raises(Killed):
        sweep.run(Budget(trials=14))
    before = {number: outcome.variant for number, outcome in dict(store.outcomes(sweep.name)).items()}
    asked = {trial.number: trial.params for trial in trials_of(store, sweep.name)}
    assert 1 <= len(asked) - len(before) <= width
    backend = simulated.backend()
    driver(store, backend, width=width).run(Budget(trials=14))
    trials = trials_of(store, sweep.name)
    assert [trial.number for trial in trials] == list(range(14))
    assert {trial.state for trial in trials} == {TrialState.COMPLETE}
    assert {number: trials[number].params for number in asked} == asked
    after = dict(store.outcomes(sweep.name))
    assert {number: outcome.variant.point for number, outcome in after.items()} == {t.number: t.params for t in trials}
    assert not {variant.digest for variant in backend.built} & {variant.digest for variant in before.values()}
    assert len(backend.built) == 14 - len(before)


@pytest.mark.parametrize("given", [[], [SMALL.point(7)]], ids=["drawn", "given"])
def test_a_kill_before_the_parameters_are_noted_drops_the_half_made_trial_and_keeps_its_point(
    store: Store, monkeypatch: pytest.MonkeyPatch, given: list[dict[str, Value]]
) -> None:
    plan: dict[str, Any] = {"space": SMALL, "start": Start(first=given)}
    with monkeypatch.context() as dying:
        dying.setattr(DriverStorage, "set_trial_params", killed)
        for _ in range(2):
            with pytest.raises(Killed):
                swept(store, InlineExecutor(simulated.backend()), 5, **plan)
    backend = simulated.backend()
    study = swept(store, InlineExecutor(backend), 10**6, **plan)
    assert [variant.point for variant in backend.built[: len(given)]] == given
    assert len({variant.digest for variant in backend.built}) == len(backend.built) == len(SMALL)
    states = [trial.state for trial in trials_of(store, study)]
    assert states == [TrialState.FAIL] * 2 + [TrialState.COMPLETE] * len(SMALL)


class Losing(InlineExecutor):
    """Loses the process of some variants when they are judged."""

    def __init__(self, backend: FakeLine, lost: Callable[[int], bool], width: int) -> None:
        super().__init__(backend, width)
        self._lost, self._seen = lost, 0

    def wait(self, timeout: float | None = None) -> tuple[int, Result] | None:
        job: AnyJob | None = self._waiting[0][1] if self._waiting else None
        if not isinstance(job, JudgeJob):
            return super().wait(timeout)
        self._seen += 1
        if not self._lost(self._seen):
            return super().wait(timeout)
        number, _ = self._waiting.popleft()
        fault = Fault(verdict=Verdict.INFRA_ERROR, code="process.lost", detail="lost")
        return number, Outcome(variant=job.variant, verdict=Verdict.INFRA_ERROR, fault=fault)


def test_points_that_are_lost_in_flight_are_judged_again(store: Store) -> None:
    executor = Losing(simulated.backend(), lambda seen: seen % 3 == 0, WIDE)
    study = swept(store, executor, 10**6, space=SMALL)
    trials = trials_of(store, study)
    states = Counter(trial.state for trial in trials)
    assert states == {TrialState.COMPLETE: len(SMALL), TrialState.FAIL: len(trials) - len(SMALL)}
    assert len(trials) > len(SMALL)
    judged = [tuple(trial.params.items()) for trial in trials if trial.state == TrialState.COMPLETE]
    assert len(set(judged)) == len(SMALL)


def test_a_kill_while_a_lost_trial_is_failed_keeps_its_point(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    enqueue = optuna.Study.enqueue_trial

    def enqueued_and_killed(study: optuna.Study, params: dict[str, Any]) -> None:
        enqueue(study, params)
        raise Killed

    losing = Losing(simulated.backend(), lambda seen: seen == 2, WIDE)
    sweep = driver(store, losing, space=SMALL)
    with monkeypatch.context() as patch:
        patch.setattr(optuna.Study, "enqueue_trial", enqueued_and_killed)
        with pytest.raises(Killed):
            sweep.run(Budget(trials=10**6))
    backend = simulated.backend()
    study = swept(store, Shuffled(backend, WIDE), 10**6, space=SMALL)
    assert standings.summary(store, study).judged == len(SMALL)
    assert len({variant.digest for variant in backend.built}) == len(backend.built)


@at_any_width
def test_a_device_that_works_no_more_ends_the_sweep_and_loses_nothing(store: Store, width: int) -> None:
    class Broken(Shuffled):
        def wait(self, timeout: float | None = None) -> tuple[int, Result] | None:
            if len(self.jobs) > 15:
                raise InfrastructureError("the device does not answer")
            return super().wait(timeout)

    sweep = driver(store, Broken(simulated.backend(), width))
    with pytest.raises(InfrastructureError, match="does not answer"):
        sweep.run(Budget(trials=20))
    judged = standings.summary(store, sweep.name).judged
    assert judged > 2
    backend = simulated.backend()
    driver(store, backend, width=width).run(Budget(trials=20))
    assert len(backend.built) == 20 - judged
    assert {trial.state for trial in trials_of(store, sweep.name)} == {TrialState.COMPLETE}


@at_any_width
def test_a_machine_that_loses_everything_ends_the_sweep(store: Store, width: int) -> None:
    executor = Losing(simulated.backend(), lambda _: True, width)
    sweep = driver(store, executor)
    with pytest.raises(InfrastructureError, match="in a row"):
        sweep.run(Budget(trials=6))
    tried = [tuple(trial.params.items()) for trial in trials_of(store, sweep.name) if trial.state == TrialState.FAIL]
    assert max(tried.count(point) for point in tried) <= 4


@at_any_width
def test_a_point_that_is_lost_every_time_is_given_up(store: Store, width: int) -> None:
    """Four tries, then the sweep ends without it: the rest of the space is judged all the same."""

    class LosesOne(FakeLine):
        def build(self, variant: Variant, conditions: Conditions) -> Artifact | Fault:
            if variant.point == SMALL.point(5):
                return Fault(verdict=Verdict.INFRA_ERROR, code="process.lost", detail="lost")
            return super().build(variant, conditions)

    executor = Shuffled(LosesOne(simulated.truth), width)
    study = swept(store, executor, 10**6, space=SMALL)
    summary = standings.summary(store, study)
    assert summary.judged == len(SMALL) - 1
    assert summary.by_verdict[Verdict.INFRA_ERROR] == 4


class Deadly(InlineExecutor):
    """Its driver is killed whenever a variant with those STAGES is judged; notes what was in flight then."""

    def __init__(self, blocks: tuple[int, ...], width: int = WIDE) -> None:
        super().__init__(simulated.backend(), width)
        self._blocks = blocks
        self.beside: list[int] = []

    def wait(self, timeout: float | None = None) -> tuple[int, Result] | None:
        job = self._waiting[0][1] if self._waiting else None
        if isinstance(job, JudgeJob) and job.variant.parameters["STAGES"] in self._blocks:
            self.beside.append(len(self._waiting))
            raise Killed
        return super().wait(timeout)


def test_a_variant_that_kills_three_drivers_the_last_time_alone_has_crashed(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Store, "finish_session", lambda *_: None)  # a killed driver says nothing
    executors = []
    for _ in range(40):
        executors.append(Deadly((2,)))
        try:
            study = swept(store, executors[-1], 10**6, space=SMALL, sampler="exhaustive")
            break
        except Killed:
            continue
    summary = standings.summary(store, study)
    deadly = sum(point["STAGES"] == 2 for point in map(SMALL.point, range(len(SMALL))))
    assert summary.judged == len(SMALL)
    assert summary.by_fault["process.driver"] == deadly
    assert summary.by_verdict[Verdict.CRASHED] == deadly, "no other variant is blamed"
    assert max(each.beside[-1] for each in executors if each.beside) > 1
    assert executors[-2].beside == [1]


def test_a_driver_that_is_stopped_in_good_order_blames_nobody(store: Store) -> None:
    for _ in range(5):
        with pytest.raises(Killed):  # as by Ctrl-C
            swept(store, Deadly((1, 2, 3)), 3, space=SMALL, sampler="exhaustive")
    study = swept(store, InlineExecutor(simulated.backend()), 3, space=SMALL, sampler="exhaustive")
    assert standings.summary(store, study).by_fault == {}


@pytest.mark.parametrize(("at_most_s", "judged"), [(80, 0), (1000, 1)])
def test_calibration_counts_towards_the_minutes(
    store: Store, monkeypatch: pytest.MonkeyPatch, at_most_s: float, judged: int
) -> None:
    """Where it takes all of the search's, that of the finals is there for a first variant."""

    class Slow(FakeLine):
        def calibrate(self, conditions: Conditions, say: Say) -> Calibration:
            now = time.monotonic()
            monkeypatch.setattr(time, "monotonic", lambda: now + 100)
            return super().calibrate(conditions, say)

    sweep = driver(store, Slow(simulated.truth))
    sweep.run(Budget(trials=5, seconds=50, at_most_s=at_most_s))
    assert standings.summary(store, sweep.name).judged == judged
