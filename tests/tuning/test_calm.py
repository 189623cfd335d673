"""A disturbed machine: its calibration is not believed, the run waits, what is measured in spite of it is marked."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState

from autotuner.search.point_sampler import Seen
from autotuner.store import Store, queries
from autotuner.tuning.finals import standings
from autotuner.tuning.finals.plan import contenders, searched
from autotuner.tuning.run.calm import (
    STEADY_S,
    Calm,
    Caution,
    Protest,
    Waiting,
)
from autotuner.tuning.run.driver import Started
from autotuner.values.outcome import Measurement
from autotuner.values.verdict import Verdict
from tests.helpers import simulated
from tests.helpers.disturbed import BASELINE_US, SHARE, Machine
from tests.helpers.driven import trials_of

PATIENT = Caution(patience_s=300)
SLOW = 2.4


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with closing(Store.open(str(path))) as opened:
        yield opened


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def objective(point: Mapping[str, int | str]) -> float:
    """What is true of a point of the simulated space."""
    return math.log(simulated.microseconds(dict(point)) / BASELINE_US)


def require_truth(store: Store, name: str) -> None:
    """Whatever has a latency in the store has the true one."""
    for outcome in store.judged_numbers(name).values():
        if outcome.verdict.has_latency:
            assert outcome.objective == pytest.approx(objective(outcome.variant.point))


def test_a_calibration_slower_than_any_before_is_not_believed(store: Store, machine: Machine) -> None:
    machine.run(store, trials=2)
    began = machine.now
    machine.slow = lambda now: SLOW if now < began + 60 else 1.0
    machine.heard.clear()
    name = machine.run(store, trials=5, caution=PATIENT)
    waits = [event for event in machine.heard if isinstance(event, Waiting)]
    assert len(waits) > 3
    assert all("240.0 us, and 100.0 us undisturbed; make (pid 7)" in event.detail for event in waits)
    gaps = [later.since_s - one.since_s for one, later in pairwise(waits)]
    assert gaps == sorted(gaps)
    (calm,) = [event for event in machine.heard if isinstance(event, Calm)]
    assert 55 < calm.waited_s < 60 * 1.25 + 10
    (started,) = [event for event in machine.heard if isinstance(event, Started)]
    assert started.calibration.baseline_us == (BASELINE_US,)
    assert standings.summary(store, name).by_verdict.keys() <= {Verdict.MEASURED, Verdict.RACED_OUT}
    require_truth(store, name)


def test_a_baseline_that_is_steadily_slower_is_believed_where_nobody_disturbs(store: Store, machine: Machine) -> None:
    """From then on both of its speeds are those of a calm machine: it is fast again beside the variants."""
    machine.run(store, trials=2)
    machine.heard.clear()
    machine.who = ""
    machine.slow = lambda _: 1.0 if any(isinstance(event, Started) for event in machine.heard) else 1.2
    name = machine.run(store, trials=6, caution=PATIENT)
    (calm,) = [event for event in machine.heard if isinstance(event, Calm)]
    assert STEADY_S < calm.waited_s < 3 * STEADY_S
    assert "the baseline takes 120.0 us again and again" in calm.detail
    (started,) = [event for event in machine.heard if isinstance(event, Started)]
    assert started.calibration.baseline_us == pytest.approx((1.2 * BASELINE_US,))
    summary = standings.summary(store, name)
    assert (summary.judged, summary.disturbed) == (6, ())
    require_truth(store, name)


@pytest.mark.parametrize(("slow", "who"), [(1.2, "make (pid 7)"), (1.6, "")])
def test_it_is_not_where_somebody_disturbs_or_it_is_far_slower(
    store: Store, machine: Machine, slow: float, who: str
) -> None:
    machine.run(store, trials=2)
    machine.slow, machine.who = lambda _: slow, who
    name = machine.run(store, trials=4, caution=PATIENT)
    assert any(isinstance(event, Protest) for event in machine.heard)
    assert len(standings.summary(store, name).disturbed) == 2


@pytest.mark.parametrize("width", [1, 4])
def test_what_is_measured_under_protest_counts_for_nothing_and_is_raced_again(
    store: Store, machine: Machine, width: int
) -> None:
    machine.run(store, trials=2)
    machine.slow = lambda _: SLOW
    name = machine.run(store, trials=8, caution=PATIENT, width=width)
    (protest,) = [event for event in machine.heard if isinstance(event, Protest)]
    assert protest.waited_s >= 300
    summary = standings.summary(store, name)
    assert summary.judged == 2
    assert summary.by_verdict[Verdict.DISTURBED] == len(summary.disturbed) == 6
    for number in summary.disturbed:
        outcome = queries.trial(store, name, number).outcome
        assert isinstance(outcome.measurement, Measurement)  # kept, for a person
        assert "make (pid 7)" in (outcome.fault.detail if outcome.fault else "")
        assert outcome.objective == math.inf
    told = {trial.number: trial.state for trial in trials_of(store, name)}
    assert {told[number] for number in summary.disturbed} == {TrialState.FAIL}
    board = {entry.number for entry in standings.leaderboard(store, name, 100)}
    raced = set(contenders(searched(store.outcomes(name)), ""))
    assert not set(summary.disturbed) & (board | raced)
    require_truth(store, name)

    machine.slow = lambda _: 1.0
    assert machine.run(store, trials=8, caution=PATIENT, width=width) == name
    after = standings.summary(store, name)
    assert (after.judged, after.disturbed) == (8, ())
    again = {store.judged_numbers(name)[number].variant.digest for number in summary.disturbed}
    assert again == {queries.trial(store, name, number).outcome.variant.digest for number in after_numbers(store, name)}
    require_truth(store, name)


def after_numbers(store: Store, name: str) -> list[int]:
    """The trials that were judged last, six of them."""
    return sorted(n for n, outcome in store.judged_numbers(name).items() if outcome.verdict.judges)[-6:]


@pytest.mark.parametrize(("job_s", "calm_after_s"), [(1.0, 50), (5.0, 100)], ids=["at the end", "on the way"])
def test_protest_ends_with_the_disturbance_and_the_same_run_races_again(
    store: Store, machine: Machine, job_s: float, calm_after_s: float
) -> None:
    machine.run(store, trials=2)
    began, machine.job_s = machine.now, job_s
    machine.slow = lambda now: SLOW if now < began + calm_after_s else 1.0
    name = machine.run(store, trials=21, caution=Caution(patience_s=30))
    kinds = [type(event).__name__ for event in machine.heard if isinstance(event, Protest | Calm)]
    assert kinds == ["Protest", "Calm"]
    summary = standings.summary(store, name)
    assert (summary.judged, summary.disturbed) == (len(simulated.small_space()), ())
    assert 0 < summary.by_verdict[Verdict.DISTURBED] <= 19
    require_truth(store, name)


@pytest.mark.parametrize("width", [1, 4])
def test_a_disturbance_that_comes_and_goes_leaves_no_wrong_figure(store: Store, machine: Machine, width: int) -> None:
    machine.slow = lambda now: SLOW if 10 < now % 40 < 30 else 1.0
    name = machine.run(store, trials=21, width=width)
    summary = standings.summary(store, name)
    assert (summary.judged, summary.disturbed) == (len(simulated.small_space()), ())
    assert summary.by_verdict[Verdict.DISTURBED] > 0
    assert not any(isinstance(event, Protest) for event in machine.heard)
    require_truth(store, name)


@pytest.mark.parametrize("sampler", ["evolution", "tpe"])
def test_a_first_calibration_that_was_disturbed_is_found_out(store: Store, machine: Machine, sampler: str) -> None:
    """Nothing is remembered, so it is believed. Once the machine is calm what was measured until then is raced again,
    and the sampler leaves out what it was told."""
    machine.slow = lambda now: SLOW if now < 12 else 1.0
    name = machine.run(store, trials=21, sampler=sampler)
    assert standings.summary(store, name).judged == len(simulated.small_space())
    require_truth(store, name)
    study = optuna.load_study(study_name=name, storage=store.optuna_storage())
    told = [(trial.number, trial.value, trial.params) for trial in study.trials if trial.state == TrialState.COMPLETE]
    wrong = [number for number, value, point in told if value != pytest.approx(objective(point))]
    assert wrong
    disturbed = [n for n, each in store.judged_numbers(name).items() if each.verdict == Verdict.DISTURBED]
    assert set(wrong) <= set(disturbed)
    seen = Seen(simulated.small_space())
    seen.read(study.trials, besides=wrong[0], left_out=disturbed)
    assert len(seen.completed) == len(told) - len(wrong)
    known = zip(seen.indices.tolist(), seen.objectives.tolist(), strict=True)
    assert all(math.isnan(v) or v == pytest.approx(objective(simulated.small_space().point(i))) for i, v in known)


def test_a_variant_that_disturbs_by_itself_is_given_up(store: Store, machine: Machine) -> None:
    """Between its races the machine is calm, so it is tried again; after four times the rest goes on without it."""
    machine.burns = dict(simulated.small_space().point(5))
    name = machine.run(store, trials=21)
    summary = standings.summary(store, name)
    assert summary.by_verdict[Verdict.DISTURBED] == 4
    assert summary.judged == len(simulated.small_space()) - 1
    assert len(summary.disturbed) == 1
    require_truth(store, name)


def test_the_share_of_a_disturbance_would_falsify_the_figures() -> None:
    """Else the tests above could not fail."""
    assert SLOW**SHARE / SLOW < 0.6
