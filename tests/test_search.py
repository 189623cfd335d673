"""The driver's loop on the fake backend: verdicts told, repeats answered, faults survived, kills recovered from."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

from autotuner.backends.fake import FakeBackend, Truth
from autotuner.errors import InfrastructureError, OracleError, StoreError
from autotuner.evaluate import AnyJob, Job, Result
from autotuner.executors.inline import InlineExecutor
from autotuner.outcome import Artifact, Calibration, Fault, Measurement, Outcome, Say, Verdict
from autotuner.search import OPTUNA_STATE, Budget, Driver, Event, Judged, Told
from autotuner.store import Store, queries
from autotuner.terms import Terms
from autotuner.variant import Value, Variant
from tests import simulated

SPACE = simulated.space()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with closing(Store.open(str(tmp_path / "studies.db"))) as opened:
        yield opened


def driver(store: Store, backend: FakeBackend, listen: Callable[[Event], None] = lambda _: None) -> Driver:
    return Driver(store, SPACE, simulated.DEVICE, simulated.terms(), InlineExecutor(backend), listen=listen)


def trials_of(store: Store, name: str) -> list[optuna.trial.FrozenTrial]:
    return optuna.load_study(study_name=name, storage=store.optuna_storage()).get_trials()


def test_every_verdict_has_an_optuna_state() -> None:
    assert set(OPTUNA_STATE) == set(Verdict)
    assert {verdict for verdict, told in OPTUNA_STATE.items() if told == Told.VALUE} == {
        verdict for verdict in Verdict if verdict.has_latency
    }


def test_a_sweep_records_and_tells_every_variant(store: Store) -> None:
    heard: list[Event] = []
    sweep = driver(store, simulated.backend(), heard.append)
    sweep.run(Budget(trials=30))
    trials = trials_of(store, sweep.name)
    assert len(trials) == 30
    assert all(trial.state == TrialState.COMPLETE for trial in trials)
    for trial in trials:
        outcome = queries.trial(store, sweep.name, trial.number).outcome
        assert outcome.variant.point == trial.params
        assert trial.value == pytest.approx(outcome.objective)
        assert trial.system_attrs["constraints:gate"] == (0.0 if outcome.verdict.has_latency else 1.0)
    assert [event.judged for event in heard if isinstance(event, Judged)] == list(range(1, 31))


def test_no_reject_is_ever_best(store: Store) -> None:
    """Rejects are told as +inf with a broken constraint: neither Optuna's own best nor ours is one."""

    def truth(variant: Variant) -> Truth:
        fast = variant.point["BLOCK"] != 8
        return Truth(us=1.0, fault=Verdict.INCORRECT) if fast else Truth(us=200.0)

    sweep = driver(store, FakeBackend(truth))
    sweep.run(Budget(trials=25))
    study = optuna.load_study(study_name=sweep.name, storage=store.optuna_storage())
    assert math.isfinite(study.best_value)
    assert study.best_trial.params["BLOCK"] == 8
    assert all(entry.variant.point["BLOCK"] == 8 for entry in queries.leaderboard(store, sweep.name, 100))


def test_equal_programs_are_measured_once(store: Store) -> None:
    def truth(variant: Variant) -> Truth:
        return Truth(us=simulated.microseconds(variant.point), program=f"block {variant.point['BLOCK']}")

    backend = FakeBackend(truth)
    sweep = driver(store, backend)
    sweep.run(Budget(trials=40))
    counts = queries.summary(store, sweep.name).by_verdict
    measured = counts.get(Verdict.MEASURED, 0) + counts.get(Verdict.RACED_OUT, 0)
    assert counts[Verdict.DEDUPLICATED] > 10
    assert counts[Verdict.DEDUPLICATED] + measured == 40
    for trial in trials_of(store, sweep.name):
        outcome = queries.trial(store, sweep.name, trial.number).outcome
        if outcome.verdict == Verdict.DEDUPLICATED:
            assert trial.value == pytest.approx(outcome.objective)


def test_the_same_command_again_goes_on_to_the_total(store: Store) -> None:
    backend = simulated.backend()
    driver(store, backend).run(Budget(trials=10))
    sweep = driver(store, backend)
    sweep.run(Budget(trials=25))
    assert len(backend.built) == 25
    assert len(trials_of(store, sweep.name)) == 25
    again = driver(store, backend)
    again.run(Budget(trials=25))
    assert len(backend.built) == 25


def test_a_small_space_ends_when_all_of_it_is_judged(store: Store) -> None:
    backend = simulated.backend()
    sweep = driver(store, backend)
    sweep.run(Budget(trials=10**6))
    assert len(backend.built) == len(SPACE)


class Killed(BaseException):
    """Stands for kill -9: nothing may catch it."""


def test_a_kill_before_the_telling_loses_and_repeats_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = simulated.backend()
    sweep = driver(store, backend)
    told = optuna.Study.tell

    def killed(*_args: object, **_kwargs: object) -> None:
        raise Killed

    driver(store, backend).run(Budget(trials=5))
    monkeypatch.setattr(optuna.Study, "tell", killed)
    with pytest.raises(Killed):
        sweep.run(Budget(trials=20))
    monkeypatch.setattr(optuna.Study, "tell", told)
    driver(store, backend).run(Budget(trials=6))  # the sixth is judged already: only the telling is left
    assert len(backend.built) == 6
    assert {trial.state for trial in trials_of(store, sweep.name)} == {TrialState.COMPLETE}
    driver(store, backend).run(Budget(trials=20))
    assert len(backend.built) == 20
    assert {trial.state for trial in trials_of(store, sweep.name)} == {TrialState.COMPLETE}


def test_a_kill_before_the_judging_judges_the_same_trial(store: Store) -> None:
    class Dies(FakeBackend):
        def build(self, variant: Variant, terms: Terms) -> object:  # type: ignore[override]
            raise Killed

    with pytest.raises(Killed):
        driver(store, Dies(simulated.truth)).run(Budget(trials=20))
    sweep = driver(store, simulated.backend())
    sweep.run(Budget(trials=3))
    trials = trials_of(store, sweep.name)
    assert [trial.number for trial in trials] == [0, 1, 2]
    assert {trial.state for trial in trials} == {TrialState.COMPLETE}


def test_a_kill_between_two_suggestions_drops_the_half_made_trial(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    suggest = optuna.Trial.suggest_categorical
    calls = [0]

    def dies_at_the_third(trial: optuna.Trial, name: str, choices: Sequence[Value]) -> object:
        calls[0] += 1
        if calls[0] == 3:
            raise Killed
        return suggest(trial, name, choices)

    monkeypatch.setattr(optuna.Trial, "suggest_categorical", dies_at_the_third)
    with pytest.raises(Killed):
        driver(store, simulated.backend()).run(Budget(trials=5))
    backend = simulated.backend()
    sweep = driver(store, backend)
    sweep.run(Budget(trials=5))
    assert len(backend.built) == 5
    assert len({variant.digest for variant in backend.built}) == 5
    states = [trial.state for trial in trials_of(store, sweep.name)]
    assert states == [TrialState.FAIL] + [TrialState.COMPLETE] * 5


class Losing(InlineExecutor):
    """Loses the process of some jobs."""

    def __init__(self, backend: FakeBackend, lost: Callable[[int], bool]) -> None:
        super().__init__(backend)
        self._lost, self._seen = lost, 0

    def wait(self, timeout: float | None = None) -> tuple[int, Result] | None:
        job: AnyJob | None = self._waiting[0][1] if self._waiting else None
        if not isinstance(job, Job):
            return super().wait(timeout)
        self._seen += 1
        if not self._lost(self._seen):
            return super().wait(timeout)
        number, _ = self._waiting.popleft()
        fault = Fault(verdict=Verdict.INFRA_ERROR, code="process.lost", detail="lost")
        return number, Outcome(variant=job.variant, verdict=Verdict.INFRA_ERROR, fault=fault)


def test_a_lost_process_fails_the_trial_and_the_point_is_judged_again(store: Store) -> None:
    backend = simulated.backend()
    executor = Losing(backend, lambda seen: seen == 2)
    sweep = Driver(store, SPACE, simulated.DEVICE, simulated.terms(), executor)
    sweep.run(Budget(trials=6))
    trials = trials_of(store, sweep.name)
    assert [trial.state for trial in trials].count(TrialState.FAIL) == 1
    assert trials[1].state == TrialState.FAIL
    assert trials[2].params == trials[1].params
    assert trials[2].state == TrialState.COMPLETE
    assert queries.summary(store, sweep.name).judged == 6


def test_a_machine_that_loses_everything_ends_the_sweep(store: Store) -> None:
    sweep = Driver(store, SPACE, simulated.DEVICE, simulated.terms(), Losing(simulated.backend(), lambda _: True))
    with pytest.raises(InfrastructureError, match="in a row"):
        sweep.run(Budget(trials=6))
    tried = [tuple(trial.params.items()) for trial in trials_of(store, sweep.name) if trial.state == TrialState.FAIL]
    assert max(tried.count(point) for point in tried) <= 4


def test_a_broken_reference_keeps_the_sweep_from_starting(store: Store) -> None:
    class Broken(FakeBackend):
        def calibrate(self, terms: Terms, say: Say) -> Calibration:
            raise OracleError("flash breaks T1")

    with pytest.raises(OracleError):
        driver(store, Broken(simulated.truth)).run(Budget(trials=3))
    assert queries.studies(store)[0].judged == 0


def test_a_second_driver_is_refused(store: Store) -> None:
    with store.lease(), pytest.raises(StoreError, match="driver"):
        driver(store, simulated.backend()).run(Budget(trials=3))


def test_another_device_is_another_study(store: Store) -> None:
    other = simulated.DEVICE.model_copy(update={"name": "another"})
    executor = InlineExecutor(simulated.backend())
    assert driver(store, simulated.backend()).name != Driver(store, SPACE, other, simulated.terms(), executor).name


def test_a_study_keeps_its_secret_seeds(store: Store) -> None:
    seen: list[tuple[int, ...]] = []

    class Notes(FakeBackend):
        def calibrate(self, terms: Terms, say: Say) -> Calibration:
            seen.append(terms.seeds)
            return super().calibrate(terms, say)

    driver(store, Notes(simulated.truth)).run(Budget(trials=2))
    fresh = simulated.terms().model_copy(update={"seeds": (9, 9, 9, 9)})
    Driver(store, SPACE, simulated.DEVICE, fresh, InlineExecutor(Notes(simulated.truth))).run(Budget(trials=3))
    assert seen[0] == seen[1] == (1, 2, 3, 4)


def test_three_drifts_in_a_row_calibrate_again(store: Store) -> None:
    """A thermometer that refuses every measurement means that the machine has changed, not the variants."""
    calibrated = [0]

    class Drifts(FakeBackend):
        def calibrate(self, terms: Terms, say: Say) -> Calibration:
            calibrated[0] += 1
            return super().calibrate(terms, say)

        def measure(self, *args: Any, **kwargs: Any) -> Measurement | Fault:
            if calibrated[0] < 2:
                return Fault(verdict=Verdict.INFRA_ERROR, code="measure.drift", detail="SDPA is slow")
            return super().measure(*args, **kwargs)

    sweep = driver(store, Drifts(simulated.truth))
    sweep.run(Budget(trials=5))
    assert calibrated[0] == 2
    summary = queries.summary(store, sweep.name)
    assert summary.judged == 5
    assert summary.by_verdict[Verdict.INFRA_ERROR] == 3


def test_a_point_that_is_lost_every_time_is_given_up(store: Store) -> None:
    """Four tries, then the sweep ends without it: the rest of the space is judged all the same."""

    class LosesOne(FakeBackend):
        def build(self, variant: Variant, terms: Terms) -> Artifact | Fault:
            if variant.point == SPACE.point(5):
                return Fault(verdict=Verdict.INFRA_ERROR, code="process.lost", detail="lost")
            return super().build(variant, terms)

    sweep = driver(store, LosesOne(simulated.truth))
    sweep.run(Budget(trials=10**6))
    summary = queries.summary(store, sweep.name)
    assert summary.judged == len(SPACE) - 1
    assert summary.by_verdict[Verdict.INFRA_ERROR] == 4
