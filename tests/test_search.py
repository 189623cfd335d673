"""The driver's loop on the fake backend: verdicts told, repeats answered, faults survived, kills recovered from."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

from autotuner.backends import Passed
from autotuner.backends.fake import FakeBackend, Truth
from autotuner.errors import InfrastructureError, InputError, OracleError, StoreError
from autotuner.evaluate import AnyJob, BuildJob, CalibrationJob, JudgeJob, Result
from autotuner.executors.inline import InlineExecutor
from autotuner.incumbent import takes_over
from autotuner.measure.arms import Tracks
from autotuner.outcome import Artifact, Calibration, Outcome, Say
from autotuner.report import GateReport
from autotuner.sampler import SAMPLERS, RandomPointSampler
from autotuner.search import BEAT_S, OPTUNA_STATE, Budget, Driver, Event, Judged, Told
from autotuner.store import Lease, Store, queries
from autotuner.store.optuna_storage import DriverStorage
from autotuner.terms import Terms
from autotuner.variant import Variant
from autotuner.verdict import Fault, Verdict
from tests import simulated

SPACE = simulated.space()
SMALL = simulated.small_space()
WIDE = 4

at_any_width = pytest.mark.parametrize("width", [1, WIDE])


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with closing(Store.open(str(path))) as opened:
        yield opened


class Shuffled(InlineExecutor):
    """Finishes jobs in any order, and sees to it that the driver sends no more than it may."""

    def __init__(self, backend: FakeBackend, width: int) -> None:
        super().__init__(backend, width)
        self._draw = random.Random(0)
        self.crowd = 0
        """The most jobs it had at once."""

    def submit(self, job: AnyJob, lane: int = 0) -> int:
        waiting = [other for _, other in self._waiting]
        assert not (waiting and isinstance(job, CalibrationJob)), "a calibration beside other jobs"
        assert sum(isinstance(other, JudgeJob) for other in (*waiting, job)) <= 2
        self.crowd = max(self.crowd, len(waiting) + 1)
        return super().submit(job, lane)

    def wait(self, timeout: float | None = None) -> tuple[int, Result] | None:
        self._waiting.rotate(self._draw.randrange(self.width))
        return super().wait(timeout)


def driver(
    store: Store,
    backend: FakeBackend,
    listen: Callable[[Event], None] = lambda _: None,
    width: int = 1,
    sampler: str = "evolution",
) -> Driver:
    executor = Shuffled(backend, width)
    return Driver(store, SPACE, simulated.DEVICE, simulated.terms(), executor, sampler, listen=listen)


def trials_of(store: Store, name: str) -> list[optuna.trial.FrozenTrial]:
    return optuna.load_study(study_name=name, storage=store.optuna_storage()).get_trials()


def test_every_verdict_has_an_optuna_state() -> None:
    assert set(OPTUNA_STATE) == set(Verdict)
    assert {verdict for verdict, told in OPTUNA_STATE.items() if told == Told.VALUE} == {
        verdict for verdict in Verdict if verdict.has_latency
    }


@at_any_width
def test_a_sweep_records_and_tells_every_variant(store: Store, width: int) -> None:
    heard: list[Event] = []
    executor = Shuffled(simulated.backend(), width)
    sweep = Driver(store, SPACE, simulated.DEVICE, simulated.terms(), executor, listen=heard.append)
    sweep.run(Budget(trials=20))
    assert executor.crowd == width
    trials = trials_of(store, sweep.name)
    assert len(trials) == 20
    assert all(trial.state == TrialState.COMPLETE for trial in trials)
    for trial in trials:
        outcome = queries.trial(store, sweep.name, trial.number).outcome
        assert outcome.variant.point == trial.params
        assert trial.value == pytest.approx(outcome.objective)
        assert trial.system_attrs["constraints:gate"] == (0.0 if outcome.verdict.has_latency else 1.0)
    assert [event.judged for event in heard if isinstance(event, Judged)] == list(range(1, 21))


@at_any_width
def test_no_reject_is_ever_best(store: Store, width: int) -> None:
    """Rejects are told as +inf with a broken constraint: neither Optuna's own best nor ours is one."""

    def truth(variant: Variant) -> Truth:
        fast = variant.point["BLOCK"] != 8
        return Truth(us=1.0, fault=Verdict.INCORRECT) if fast else Truth(us=200.0)

    sweep = driver(store, FakeBackend(truth), width=width)
    sweep.run(Budget(trials=20))
    study = optuna.load_study(study_name=sweep.name, storage=store.optuna_storage())
    assert math.isfinite(study.best_value)
    assert study.best_trial.params["BLOCK"] == 8
    assert all(entry.variant.point["BLOCK"] == 8 for entry in queries.leaderboard(store, sweep.name, 100))


@at_any_width
def test_equal_programs_are_measured_once(store: Store, width: int) -> None:
    def truth(variant: Variant) -> Truth:
        return Truth(us=simulated.microseconds(variant.point), program=f"block {variant.point['BLOCK']}")

    sweep = driver(store, FakeBackend(truth), width=width)
    sweep.run(Budget(trials=25))
    counts = queries.summary(store, sweep.name).by_verdict
    measured = counts.get(Verdict.MEASURED, 0) + counts.get(Verdict.RACED_OUT, 0)
    assert counts[Verdict.DEDUPLICATED] > 10
    assert counts[Verdict.DEDUPLICATED] + measured == 25
    for trial in trials_of(store, sweep.name):
        outcome = queries.trial(store, sweep.name, trial.number).outcome
        if outcome.verdict == Verdict.DEDUPLICATED:
            assert trial.value == pytest.approx(outcome.objective)


class Counting(FakeBackend):
    """Counts what goes through the gate, by program."""

    def __init__(self, truth: Callable[[Variant], Truth]) -> None:
        super().__init__(truth)
        self.checked: Counter[str] = Counter()

    def check(self, artifact: Artifact, terms: Terms, say: Say, passed: Passed | None = None) -> GateReport:
        self.checked[artifact.program_hash] += passed is None
        return super().check(artifact, terms, say, passed)


def test_a_program_that_is_being_judged_is_waited_for(store: Store) -> None:
    """All are one program, so that equal ones are built while the first of them is judged."""
    backend = Counting(lambda _: Truth(us=50, program="the one"))
    sweep = driver(store, backend, width=WIDE)
    sweep.run(Budget(trials=10))
    assert backend.checked == {"the one": 1}
    assert queries.summary(store, sweep.name).by_verdict == {Verdict.MEASURED: 1, Verdict.DEDUPLICATED: 9}
    first = queries.best(store, sweep.name)
    assert first is not None
    assert first.outcome.artifact is not None
    for trial in trials_of(store, sweep.name):
        outcome = queries.trial(store, sweep.name, trial.number).outcome
        assert outcome.measurement == first.outcome.measurement
        assert outcome.original in (None, first.outcome.artifact.digest)


def test_a_program_whose_like_was_rejected_is_judged_itself(store: Store) -> None:
    backend = Counting(lambda _: Truth(fault=Verdict.INCORRECT, program="the one"))
    sweep = driver(store, backend, width=WIDE)
    sweep.run(Budget(trials=10))
    assert backend.checked == {"the one": 10}
    assert queries.summary(store, sweep.name).by_verdict == {Verdict.INCORRECT: 10}


def test_what_is_known_when_the_device_is_near_counts(store: Store) -> None:
    """A variant races against the one that was the incumbent when it was sent."""
    incumbents: list[Outcome] = []

    class Looks(Shuffled):
        def submit(self, job: AnyJob, lane: int = 0) -> int:
            if isinstance(job, JudgeJob):
                assert job.incumbent == (incumbents[-1].artifact if incumbents else None)
            return super().submit(job, lane)

        def wait(self, timeout: float | None = None) -> tuple[int, Result] | None:
            done = super().wait(timeout)
            outcome = done[1] if done is not None else None
            if isinstance(outcome, Outcome) and takes_over(outcome, incumbents[-1] if incumbents else None):
                incumbents.append(outcome)
            return done

    executor = Looks(simulated.backend(), WIDE)
    Driver(store, SPACE, simulated.DEVICE, simulated.terms(), executor).run(Budget(trials=20))
    assert len(incumbents) > 2


@at_any_width
def test_the_same_command_again_goes_on_to_the_total(store: Store, width: int) -> None:
    backend = simulated.backend()
    driver(store, backend, width=width).run(Budget(trials=6))
    sweep = driver(store, backend, width=width)
    sweep.run(Budget(trials=14))
    assert len(backend.built) == 14
    assert len(trials_of(store, sweep.name)) == 14
    again = driver(store, backend, width=width)
    again.run(Budget(trials=14))
    assert len(backend.built) == 14


@at_any_width
def test_a_small_space_ends_when_all_of_it_is_judged(store: Store, width: int) -> None:
    backend = simulated.backend()
    executor = Shuffled(backend, width)
    Driver(store, SMALL, simulated.DEVICE, simulated.terms(), executor).run(Budget(trials=10**6))
    assert len(backend.built) == len(SMALL)


def test_when_the_time_is_up_nothing_is_proposed_and_what_flies_is_judged(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr("autotuner.search.time", SimpleNamespace(monotonic=lambda: now[0]))

    class TakesTime(Shuffled):
        def wait(self, timeout: float | None = None) -> tuple[int, Result] | None:
            now[0] += 1
            return super().wait(timeout)

    backend = simulated.backend()
    sweep = Driver(store, SPACE, simulated.DEVICE, simulated.terms(), TakesTime(backend, WIDE))
    sweep.run(Budget(trials=100, seconds=10))
    assert WIDE < len(backend.built) < 12
    assert {trial.state for trial in trials_of(store, sweep.name)} == {TrialState.COMPLETE}
    assert queries.summary(store, sweep.name).judged == len(backend.built)


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

    def __init__(self, backend: FakeBackend, width: int, jobs: int) -> None:
        super().__init__(backend, width)
        self._jobs = jobs

    def wait(self, timeout: float | None = None) -> tuple[int, Result] | None:
        self._jobs -= 1
        if self._jobs == 0:
            raise Killed
        return super().wait(timeout)


@at_any_width
@pytest.mark.parametrize("jobs", [2, 4, 9, 20])
def test_a_kill_before_the_judging_judges_the_same_trials(store: Store, width: int, jobs: int) -> None:
    """What was recorded is not built again; what was in flight is judged under its number."""
    dying = Dying(simulated.backend(), width, jobs)
    sweep = Driver(store, SPACE, simulated.DEVICE, simulated.terms(), dying)
    with pytest.raises(Killed):
        sweep.run(Budget(trials=14))
    before = {number: outcome.variant for number, outcome in store.judged_numbers(sweep.name).items()}
    asked = {trial.number: trial.params for trial in trials_of(store, sweep.name)}
    assert 1 <= len(asked) - len(before) <= width
    backend = simulated.backend()
    driver(store, backend, width=width).run(Budget(trials=14))
    trials = trials_of(store, sweep.name)
    assert [trial.number for trial in trials] == list(range(14))
    assert {trial.state for trial in trials} == {TrialState.COMPLETE}
    assert {number: trials[number].params for number in asked} == asked
    after = store.judged_numbers(sweep.name)
    assert {number: outcome.variant.point for number, outcome in after.items()} == {t.number: t.params for t in trials}
    assert not {variant.digest for variant in backend.built} & {variant.digest for variant in before.values()}
    assert len(backend.built) == 14 - len(before)


def test_a_kill_before_the_parameters_are_noted_drops_the_half_made_trial(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as dying:
        dying.setattr(DriverStorage, "set_trial_params", killed)
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
    """Loses the process of some variants when they are built or, else, judged."""

    def __init__(self, backend: FakeBackend, lost: Callable[[int], bool], width: int = 1, built: bool = False) -> None:
        super().__init__(backend, width)
        self._lost, self._seen = lost, 0
        self._kind = BuildJob if built else JudgeJob

    def wait(self, timeout: float | None = None) -> tuple[int, Result] | None:
        job: AnyJob | None = self._waiting[0][1] if self._waiting else None
        if not isinstance(job, self._kind):
            return super().wait(timeout)
        self._seen += 1
        if not self._lost(self._seen):
            return super().wait(timeout)
        number, _ = self._waiting.popleft()
        fault = Fault(verdict=Verdict.INFRA_ERROR, code="process.lost", detail="lost")
        return number, Outcome(variant=job.variant, verdict=Verdict.INFRA_ERROR, fault=fault)


@pytest.mark.parametrize("built", [False, True])
def test_a_lost_process_fails_the_trial_and_the_point_is_judged_again(store: Store, built: bool) -> None:
    executor = Losing(simulated.backend(), lambda seen: seen == 2, built=built)
    sweep = Driver(store, SPACE, simulated.DEVICE, simulated.terms(), executor)
    sweep.run(Budget(trials=6))
    trials = trials_of(store, sweep.name)
    (failed,) = [trial for trial in trials if trial.state == TrialState.FAIL]
    again = trials[failed.number + 1]
    assert (again.params, again.state) == (failed.params, TrialState.COMPLETE)
    assert queries.summary(store, sweep.name).judged == 6


def test_points_that_are_lost_in_flight_are_judged_again(store: Store) -> None:
    executor = Losing(simulated.backend(), lambda seen: seen % 3 == 0, WIDE)
    sweep = Driver(store, SMALL, simulated.DEVICE, simulated.terms(), executor)
    sweep.run(Budget(trials=10**6))
    trials = trials_of(store, sweep.name)
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
    sweep = Driver(store, SMALL, simulated.DEVICE, simulated.terms(), losing)
    with monkeypatch.context() as patch:
        patch.setattr(optuna.Study, "enqueue_trial", enqueued_and_killed)
        with pytest.raises(Killed):
            sweep.run(Budget(trials=10**6))
    backend = simulated.backend()
    sweep = Driver(store, SMALL, simulated.DEVICE, simulated.terms(), Shuffled(backend, WIDE))
    sweep.run(Budget(trials=10**6))
    assert queries.summary(store, sweep.name).judged == len(SMALL)
    assert len({variant.digest for variant in backend.built}) == len(backend.built)


def test_a_point_that_is_enqueued_twice_is_judged_once(store: Store) -> None:
    sweep = driver(store, simulated.backend(), width=WIDE)
    sweep.run(Budget(trials=1))
    study = optuna.load_study(study_name=sweep.name, storage=store.optuna_storage())
    for _ in range(2):
        study.enqueue_trial(dict(SPACE.point(100)))
    backend = simulated.backend()
    driver(store, backend, width=WIDE).run(Budget(trials=6))
    assert len(backend.built) == 5
    states = [trial.state for trial in trials_of(store, sweep.name)]
    assert states[:3] == [TrialState.COMPLETE, TrialState.COMPLETE, TrialState.FAIL]
    assert len(states) == 7


@pytest.mark.parametrize("sampler", ["evolution", "tpe"])
def test_what_another_program_enqueues_and_is_no_point_fails(store: Store, sampler: str) -> None:
    sweep = driver(store, simulated.backend(), sampler=sampler)
    sweep.run(Budget(trials=1))
    study = optuna.load_study(study_name=sweep.name, storage=store.optuna_storage())
    whole = dict(SPACE.point(100))
    for point in ({"IMPL": "nonsense"}, {"IMPL": whole["IMPL"]}, {**whole, "MORE": 1}, whole):
        study.enqueue_trial(point)
    driver(store, simulated.backend(), sampler=sampler).run(Budget(trials=3))
    done, *odd, right, last = trials_of(store, sweep.name)
    assert [trial.state for trial in odd] == [TrialState.FAIL] * 3
    assert right.params == whole
    assert {trial.state for trial in (done, right, last)} == {TrialState.COMPLETE}


def test_what_was_judged_is_told_under_another_number_without_a_job(store: Store) -> None:
    """Also a reject; our tables keep the one trial that was judged."""
    default = SPACE.point(SPACE.default_index)
    backend = FakeBackend(lambda v: Truth(us=50.0) if v.point == default else Truth(fault=Verdict.INCORRECT))
    driver(store, backend).run(Budget(trials=3))
    sweep = driver(store, backend)
    study = optuna.load_study(study_name=sweep.name, storage=store.optuna_storage())
    for trial in study.trials:
        study.enqueue_trial(trial.params)
    sweep.run(Budget(trials=4))
    assert len(backend.built) == 4
    told = [(trial.state, trial.params, trial.value, trial.constraints) for trial in trials_of(store, sweep.name)]
    assert told[3:6] == told[:3]
    assert [value for _, _, value, _ in told[:6]].count(math.inf) == 4
    assert list(store.judged_numbers(sweep.name)) == [0, 1, 2, 6]


def test_a_trial_is_whole_in_the_file_before_its_build_begins(store: Store, path: Path) -> None:
    seen: list[bool] = []

    class Looks(Shuffled):
        def submit(self, job: AnyJob, lane: int = 0) -> int:
            if isinstance(job, BuildJob):
                file = optuna.storages.RDBStorage(f"sqlite:///{path}")
                points = [trial.params for trial in optuna.load_study(study_name=sweep.name, storage=file).get_trials()]
                seen.append(points[-1] == job.variant.point)
            return super().submit(job, lane)

    sweep = Driver(store, SPACE, simulated.DEVICE, simulated.terms(), Looks(simulated.backend(), WIDE))
    sweep.run(Budget(trials=6))
    assert seen == [True] * 6


def test_the_lease_is_renewed_between_slow_proposals(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    beats = [0.0]
    beat = Lease.beat

    class Slow(RandomPointSampler):
        def propose(self, *args: Any) -> int:
            now[0] += 0.4 * BEAT_S
            return super().propose(*args)

    def noted(lease: Lease) -> None:
        beats.append(now[0])
        beat(lease)

    monkeypatch.setattr("autotuner.search.time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(Lease, "beat", noted)
    monkeypatch.setitem(SAMPLERS, "slow", Slow)
    executor = Shuffled(simulated.backend(), 30)
    Driver(store, SPACE, simulated.DEVICE, simulated.terms(), executor, sampler="slow").run(Budget(trials=30))
    assert now[0] > 11 * BEAT_S  # all before the first result is waited for
    assert max(later - one for one, later in pairwise([*beats, now[0]])) < 1.5 * BEAT_S
    assert len(beats) < 13


def test_a_sampler_that_does_not_apply_leaves_no_study(store: Store) -> None:
    executor = InlineExecutor(simulated.backend())
    sweep = Driver(store, SMALL, simulated.DEVICE, simulated.terms(), executor, sampler="cmaes")
    with pytest.raises(InputError, match="use another sampler"):
        sweep.run(Budget(trials=3))
    assert queries.studies(store) == ()
    assert optuna.get_all_study_names(store.optuna_storage()) == []


@at_any_width
def test_a_device_that_works_no_more_ends_the_sweep_and_loses_nothing(store: Store, width: int) -> None:
    class Broken(Shuffled):
        def wait(self, timeout: float | None = None) -> tuple[int, Result] | None:
            if self._next > 15:
                raise InfrastructureError("the device does not answer")
            return super().wait(timeout)

    sweep = Driver(store, SPACE, simulated.DEVICE, simulated.terms(), Broken(simulated.backend(), width))
    with pytest.raises(InfrastructureError, match="does not answer"):
        sweep.run(Budget(trials=20))
    judged = queries.summary(store, sweep.name).judged
    assert judged > 2
    backend = simulated.backend()
    driver(store, backend, width=width).run(Budget(trials=20))
    assert len(backend.built) == 20 - judged
    assert {trial.state for trial in trials_of(store, sweep.name)} == {TrialState.COMPLETE}


@at_any_width
def test_a_machine_that_loses_everything_ends_the_sweep(store: Store, width: int) -> None:
    executor = Losing(simulated.backend(), lambda _: True, width)
    sweep = Driver(store, SPACE, simulated.DEVICE, simulated.terms(), executor)
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


@at_any_width
def test_the_first_points_of_a_new_study_are_those_it_is_given(store: Store, width: int) -> None:
    def run(first: list[int], trials: int) -> str:
        points = [SPACE.point(index) for index in first]
        executor = Shuffled(simulated.backend(), width)
        sweep = Driver(store, SPACE, simulated.DEVICE, simulated.terms(), executor, first=points)
        sweep.run(Budget(trials=trials))
        return sweep.name

    name = run([100, 200, 100], trials=6)
    assert run([300], trials=10) == name
    trials = trials_of(store, name)
    assert [trial.params for trial in trials[:2]] == [SPACE.point(100), SPACE.point(200)]
    assert [trial.number for trial in trials if "fixed_params" in trial.system_attrs] == [0, 1]
    assert {trial.state for trial in trials} == {TrialState.COMPLETE}
    assert len(trials) == 10


@at_any_width
def test_three_drifts_in_a_row_calibrate_again(store: Store, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thermometer that refuses every measurement means that the machine has changed, not the variants: those that
    are built wait for the new calibration."""
    calibrated = [0]

    class Drifts(FakeBackend):
        def calibrate(self, terms: Terms, say: Say) -> Calibration:
            calibrated[0] += 1
            return super().calibrate(terms, say)

        def tracks(self, terms: Terms) -> Tracks:
            tracks = super().tracks(terms)
            for track in tracks if calibrated[0] < 2 else ():
                monkeypatch.setattr(track, "_baseline_us", 200.0)  # SDPA is slow
            return tracks

    monkeypatch.setattr("time.sleep", lambda _: None)

    sweep = driver(store, Drifts(simulated.truth), width=width)
    sweep.run(Budget(trials=5))
    assert calibrated[0] == 2
    summary = queries.summary(store, sweep.name)
    assert summary.judged == 5
    assert summary.by_verdict[Verdict.INFRA_ERROR] in ((3,) if width == 1 else (3, 4))  # one more was on the device


@at_any_width
def test_a_point_that_is_lost_every_time_is_given_up(store: Store, width: int) -> None:
    """Four tries, then the sweep ends without it: the rest of the space is judged all the same."""

    class LosesOne(FakeBackend):
        def build(self, variant: Variant, terms: Terms) -> Artifact | Fault:
            if variant.point == SMALL.point(5):
                return Fault(verdict=Verdict.INFRA_ERROR, code="process.lost", detail="lost")
            return super().build(variant, terms)

    executor = Shuffled(LosesOne(simulated.truth), width)
    sweep = Driver(store, SMALL, simulated.DEVICE, simulated.terms(), executor)
    sweep.run(Budget(trials=10**6))
    summary = queries.summary(store, sweep.name)
    assert summary.judged == len(SMALL) - 1
    assert summary.by_verdict[Verdict.INFRA_ERROR] == 4
