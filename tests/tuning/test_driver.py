"""The driver's loop on the fake backend: verdicts told, repeats answered, faults survived, kills recovered from."""

import math
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

from autotuner.run import executor as executors
from autotuner.run.executor import BEAT_S
from autotuner.run.jobs import AnyJob, BuildJob, CalibrationJob, Result
from autotuner.run.line import Passed
from autotuner.search.samplers import SAMPLERS, RandomPointSampler
from autotuner.store import Lease, Store, queries
from autotuner.tuning.finals import standings
from autotuner.tuning.run import driver as driver_module
from autotuner.tuning.run.driver import Budget, Event, Judged
from autotuner.tuning.run.plan import Start
from autotuner.values.conditions import Conditions
from autotuner.values.gate_report import GateReport
from autotuner.values.outcome import Artifact, Calibration, Say
from autotuner.values.variant import Variant
from autotuner.values.verdict import Verdict
from tests.helpers import simulated
from tests.helpers.driven import SPACE, WIDE, Shuffled, at_any_width, driver, swept, trials_of
from tests.helpers.fake_line import FakeLine, Truth
from tests.helpers.inline_executor import InlineExecutor


@at_any_width
def test_a_sweep_records_and_tells_every_variant(store: Store, width: int) -> None:
    heard: list[Event] = []
    executor = Shuffled(simulated.backend(), width)
    study = swept(store, executor, 20, heard.append)
    assert width <= executor.crowd <= width + 1, "an A/A race comes on top"
    trials = trials_of(store, study)
    assert len(trials) == 20
    assert all(trial.state == TrialState.COMPLETE for trial in trials)
    for trial in trials:
        outcome = queries.trial(store, study, trial.number).outcome
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

    name = swept(store, FakeLine(truth), 20, width=width)
    study = optuna.load_study(study_name=name, storage=store.optuna_storage())
    assert math.isfinite(study.best_value)
    assert study.best_trial.params["BLOCK"] == 8
    assert all(entry.variant.point["BLOCK"] == 8 for entry in standings.leaderboard(store, name, 100))


@at_any_width
def test_equal_programs_are_measured_once(store: Store, width: int) -> None:
    def truth(variant: Variant) -> Truth:
        return Truth(us=simulated.microseconds(variant.point), program=f"block {variant.point['BLOCK']}")

    study = swept(store, FakeLine(truth), 25, width=width)
    counts = standings.summary(store, study).by_verdict
    measured = counts.get(Verdict.MEASURED, 0) + counts.get(Verdict.RACED_OUT, 0)
    assert counts[Verdict.DEDUPLICATED] > 10
    assert counts[Verdict.DEDUPLICATED] + measured == 25
    for trial in trials_of(store, study):
        outcome = queries.trial(store, study, trial.number).outcome
        if outcome.verdict == Verdict.DEDUPLICATED:
            assert trial.value == pytest.approx(outcome.objective)


class Counting(FakeLine):
    """Counts what goes through the gate, by program."""

    def __init__(self, truth: Callable[[Variant], Truth]) -> None:
        super().__init__(truth)
        self.checked: Counter[str] = Counter()

    def check(self, artifact: Artifact, conditions: Conditions, say: Say, passed: Passed | None = None) -> GateReport:
        self.checked[artifact.program_hash] += passed is None
        return super().check(artifact, conditions, say, passed)


def test_a_program_that_is_being_judged_is_waited_for(store: Store) -> None:
    """All are one program, so that equal ones are built while the first of them is judged."""
    backend = Counting(lambda _: Truth(us=50, program="the one"))
    study = swept(store, backend, 10, width=WIDE)
    assert backend.checked == {"the one": 1}
    assert standings.summary(store, study).by_verdict == {Verdict.MEASURED: 1, Verdict.DEDUPLICATED: 9}
    first = standings.best(store, study)
    assert first.outcome.artifact is not None
    for trial in trials_of(store, study):
        outcome = queries.trial(store, study, trial.number).outcome
        assert outcome.measurement == first.outcome.measurement
        assert outcome.original in (None, first.outcome.artifact.digest)


@at_any_width
def test_a_budget_that_is_changed_meanwhile_is_the_one_that_is_spent(store: Store, width: int) -> None:
    def hear(event: Event) -> None:
        if isinstance(event, Judged) and event.judged == 3:
            sweep.budget = Budget(trials=9)

    backend = simulated.backend()
    sweep = driver(store, backend, hear, width=width)
    sweep.run(Budget(trials=5))
    assert len(backend.built) == 9


class TakesTime(Shuffled):
    """Each job takes some seconds, one after another, by the driver's clock."""

    def __init__(self, backend: FakeLine, width: int, job_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(backend, width)
        self.now, self._job_s = 0.0, job_s
        monkeypatch.setattr(driver_module, "time", SimpleNamespace(monotonic=lambda: self.now))

    def wait(self, timeout: float | None = None) -> tuple[int, Result] | None:
        self.now += self._job_s
        return super().wait(timeout)


def test_when_the_time_is_up_nothing_is_proposed_and_what_flies_is_judged(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = simulated.backend()
    executor = TakesTime(backend, WIDE, 1, monkeypatch)
    sweep = driver(store, executor)
    sweep.run(Budget(trials=100, seconds=10))
    assert WIDE < len(backend.built) < 12
    assert {trial.state for trial in trials_of(store, sweep.name)} == {TrialState.COMPLETE}
    assert standings.summary(store, sweep.name).judged == len(backend.built)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("sampler", ["evolution", "tpe"])
def test_what_another_program_enqueues_and_is_no_point_fails(store: Store, sampler: str) -> None:
    name = swept(store, simulated.backend(), 1, sampler=sampler)
    study = optuna.load_study(study_name=name, storage=store.optuna_storage())
    whole = dict(SPACE.point(100))
    for point in ({"IMPL": "nonsense"}, {"IMPL": whole["IMPL"]}, {**whole, "MORE": 1}, whole):
        study.enqueue_trial(point)
    driver(store, simulated.backend(), sampler=sampler).run(Budget(trials=3))
    done, *odd, right, last = trials_of(store, name)
    assert [trial.state for trial in odd] == [TrialState.FAIL] * 3
    assert right.params == whole
    assert {trial.state for trial in (done, right, last)} == {TrialState.COMPLETE}


def test_a_trial_is_whole_in_the_file_before_its_build_begins(store: Store, path: Path) -> None:
    seen: list[bool] = []

    class Looks(Shuffled):
        def submit(self, job: AnyJob, lane: int = 0) -> int:
            if isinstance(job, BuildJob):
                file = optuna.storages.RDBStorage(f"sqlite:///{path}")
                points = [trial.params for trial in optuna.load_study(study_name=sweep.name, storage=file).get_trials()]
                seen.append(points[-1] == job.variant.point)
            return super().submit(job, lane)

    sweep = driver(store, Looks(simulated.backend(), WIDE))
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

    def noted(lease: Lease, doing: str | None = None) -> None:
        beats.append(now[0])
        beat(lease, doing)

    monkeypatch.setattr(executors, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(Lease, "beat", noted)
    monkeypatch.setitem(SAMPLERS, "slow", Slow)
    executor = Shuffled(simulated.backend(), 30)
    swept(store, executor, 30, sampler="slow")
    assert now[0] > 11 * BEAT_S  # all before the first result is waited for
    assert max(later - one for one, later in pairwise([*beats, now[0]])) < 1.5 * BEAT_S
    assert len(beats) < 13


@at_any_width
def test_drivers_of_two_processes_take_turns(path: Path, width: int) -> None:
    """Each keeps its store open, as workers do, and goes on with what the other one has left in flight."""
    with Store.open(str(path)) as one, Store.open(str(path)) as other:
        for store, until in ((one, 5), (other, 12), (one, 18), (other, 25), (one, 30)):

            def hear(event: Event, until: int = until) -> None:
                if isinstance(event, Judged) and event.judged == until:
                    raise KeyboardInterrupt

            with pytest.raises(KeyboardInterrupt):
                driver(store, simulated.backend(), hear, width=width).run(Budget(trials=99))
        study = swept(other, simulated.backend(), 31, width=width)
        found = dict(other.outcomes(study))
        assert len({outcome.variant.digest for outcome in found.values()}) == len(found) >= 31
        assert TrialState.RUNNING not in {trial.state for trial in trials_of(other, study)}


def test_a_study_keeps_its_secret_seeds(store: Store) -> None:
    seen: list[tuple[int, ...]] = []

    class Notes(FakeLine):
        def calibrate(self, conditions: Conditions, say: Say) -> Calibration:
            seen.append(conditions.seeds)
            return super().calibrate(conditions, say)

    driver(store, Notes(simulated.truth)).run(Budget(trials=2))
    fresh = simulated.conditions().model_copy(update={"seeds": (9, 9, 9, 9)})
    swept(store, InlineExecutor(Notes(simulated.truth)), 3, conditions=fresh)
    assert seen[0] == seen[1] == (1, 2, 3, 4)


@at_any_width
def test_the_first_points_of_a_new_study_are_those_it_is_given(store: Store, width: int) -> None:
    def run(first: list[int], trials: int) -> str:
        points = [SPACE.point(index) for index in first]
        return swept(store, simulated.backend(), trials, width=width, start=Start(first=points))

    name = run([100, 200, 100], trials=6)
    assert run([300], trials=10) == name
    trials = trials_of(store, name)
    assert [trial.params for trial in trials[:2]] == [SPACE.point(100), SPACE.point(200)]
    assert [trial.number for trial in trials if "fixed_params" in trial.system_attrs] == [0, 1]
    assert {trial.state for trial in trials} == {TrialState.COMPLETE}
    assert len(trials) == 10


def test_a_run_without_time_ends_what_an_earlier_one_left(store: Store) -> None:
    """Killed in the middle of a trial; the next run has no more time, or has judged enough already."""

    class Killed(Exception):
        pass

    class Dies(Shuffled):
        after = 0

        def wait(self, timeout: float | None = None) -> tuple[int, Result] | None:
            if len(dict(store.outcomes(name))) >= self.after:
                raise Killed
            return super().wait(timeout)

    name = driver(store, simulated.backend()).name
    for dies_after, budget, judged in ((1, Budget(trials=99, seconds=0), 2), (3, Budget(trials=3), 3)):
        executor = Dies(simulated.backend(), 1)
        executor.after = dies_after
        with pytest.raises(Killed):
            swept(store, executor, 99)
        driver(store, simulated.backend()).run(budget)
        assert standings.summary(store, name).judged == judged
        assert [trial.number for trial in trials_of(store, name) if trial.state == TrialState.RUNNING] == []


def test_what_was_proposed_first_is_judged_first_however_long_it_builds(store: Store) -> None:
    heard: list[Event] = []
    driver(store, simulated.backend(), heard.append, width=WIDE).run(Budget(trials=6))
    assert next(event for event in heard if isinstance(event, Judged)).number == 0


@pytest.mark.parametrize("ahead", [True, False])
def test_the_first_points_of_a_new_study_are_built_while_the_devices_are_calibrated(store: Store, ahead: bool) -> None:
    """As many as there are builders; they lie in the cache when their trials come. A study that goes on has none."""

    class Told(Shuffled):
        @property
        def builders(self) -> int:
            return 2

    first, hints = SPACE.point(100), {101: 0.0, 102: 0.0}
    plan: dict[str, Any] = {"start": Start([first], hints=hints), "builds_ahead": ahead}
    executor = Told(simulated.backend(), 4)
    study = swept(store, executor, 6, **plan)
    calibration = next(place for place, job in enumerate(executor.jobs) if isinstance(job, CalibrationJob))
    built = [job.variant.point for job in executor.jobs if isinstance(job, BuildJob)]
    assert calibration == 0
    assert built[:2] == ([first, SPACE.point(101)] if ahead else [first, built[1]])
    assert (built.count(first), len(built)) == ((2, 8) if ahead else (1, 6))
    assert len(trials_of(store, study)) == 6
    again = Told(simulated.backend(), 4)
    swept(store, again, 8, **plan)
    assert sum(isinstance(job, BuildJob) for job in again.jobs) == 2
