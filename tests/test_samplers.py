"""Every sampler proposes valid points only, none twice, the same ones after a stop; ours finds the best ones."""

from __future__ import annotations

import math
import random
import statistics

import optuna
import pytest
from optuna.trial import Trial, TrialState

from autotuner.sampler import SAMPLERS
from autotuner.space import Space
from autotuner.store import Store
from autotuner.variant import Value, Variant
from tests import simulated

SPACE = simulated.space()


def ask(study: optuna.Study, space: Space) -> tuple[Trial, dict[str, Value]]:
    """The next trial and its point, suggested as the driver does."""
    trial = study.ask()
    point: dict[str, Value] = {}
    for name in space.file.order:
        if space.file.exists(name, point, {**space.facts, **space.file.shared_facts}):
            point[name] = trial.suggest_categorical(name, space.values[name])  # type: ignore[assignment]
    return trial, point


def run(sampler: str, seed: int, asks: int, study: optuna.Study | None = None) -> list[int]:
    """Indices of the points asked for, told their true latency."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = study or optuna.create_study(sampler=SAMPLERS[sampler](SPACE, seed))
    indices = []
    for _ in range(asks):
        trial, point = ask(study, SPACE)
        index = SPACE.index_of(point)
        assert index is not None
        indices.append(index)
        fault = simulated.truth(simulated_variant(point)).fault
        trial.set_constraint("gate", 0.0 if fault is None else 1.0)
        study.tell(trial, float("inf") if fault is not None else simulated.microseconds(point))
    return indices


def simulated_variant(point: dict[str, Value]) -> Variant:
    return Variant.of("sdpa", "cpu", point)


@pytest.mark.parametrize("sampler", sorted(SAMPLERS))
def test_valid_points_only_and_none_twice(sampler: str) -> None:
    indices = run(sampler, seed=1, asks=60)
    assert len(set(indices)) == 60
    assert indices[0] == SPACE.default_index


@pytest.mark.parametrize("sampler", sorted(SAMPLERS))
def test_seeds_differ_and_repeat(sampler: str) -> None:
    assert run(sampler, 3, 15) == run(sampler, 3, 15)
    assert run(sampler, 3, 15) != run(sampler, 4, 15)


@pytest.mark.parametrize("sampler", ["evolution", "random"])
def test_a_resumed_study_goes_on_as_it_would_have(sampler: str) -> None:
    whole = run(sampler, 5, 30)
    storage = optuna.storages.InMemoryStorage()
    study = optuna.create_study(sampler=SAMPLERS[sampler](SPACE, 5), storage=storage, study_name="s")
    first = run(sampler, 5, 17, study)
    again = optuna.load_study(study_name="s", storage=storage, sampler=SAMPLERS[sampler](SPACE, 5))
    assert first + run(sampler, 5, 13, again) == whole


@pytest.mark.parametrize("sampler", sorted(SAMPLERS))
def test_the_whole_space_can_be_asked_for(sampler: str) -> None:
    small = simulated.small_space()
    study = optuna.create_study(sampler=SAMPLERS[sampler](small, 0))
    seen = set()
    for _ in range(len(small)):
        trial, point = ask(study, small)
        seen.add(small.index_of(point))
        study.tell(trial, 1.0)
    assert seen == set(range(len(small)))
    with pytest.raises(ValueError, match="every point"):
        ask(study, small)


@pytest.mark.parametrize("sampler", sorted(SAMPLERS))
def test_pending_points_are_not_proposed_again(sampler: str, store: Store) -> None:
    """Of up to 10 in flight one at a time is told, in any order; one is enqueued by hand."""
    study = optuna.create_study(sampler=SAMPLERS[sampler](SPACE, 0), storage=store.optuna_storage())
    study.enqueue_trial(dict(SPACE.point(100)))
    draw = random.Random(0)
    flying: list[Trial] = []
    points = []
    for _ in range(30):
        trial, point = ask(study, SPACE)
        points.append(SPACE.index_of(point))
        flying.append(trial)
        if len(flying) == 10:
            study.tell(flying.pop(draw.randrange(10)), simulated.microseconds(point))
    assert len(set(points)) == 30


def test_what_a_sampler_remembers_is_what_a_fresh_one_reads() -> None:
    """With trials in flight that end in any order, fail and are enqueued again, a new sampler proposes the same."""
    study = optuna.create_study(sampler=SAMPLERS["evolution"](SPACE, 2))
    draw = random.Random(2)
    flying: list[Trial] = []
    for _ in range(60):
        trial, point = ask(study, SPACE)
        frozen = study.get_trials(deepcopy=False)[trial.number]
        if "fixed_params" not in frozen.system_attrs:
            assert SAMPLERS["evolution"](SPACE, 2).sample_relative(study, frozen, {}) == point
        flying.append(trial)
        if len(flying) == 6:
            ended = flying.pop(draw.randrange(6))
            if draw.random() < 0.2:
                study.tell(ended, state=TrialState.FAIL)
                study.enqueue_trial(ended.params)
            else:
                study.tell(ended, draw.choice([math.inf, draw.gauss(0, 1)]))


def test_a_failed_trial_is_left_to_the_queue() -> None:
    study = optuna.create_study(sampler=SAMPLERS["evolution"](SPACE, 0))
    trial, point = ask(study, SPACE)
    study.tell(trial, state=TrialState.FAIL)
    study.enqueue_trial(dict(point))
    assert ask(study, SPACE)[1] == point
    assert ask(study, SPACE)[1] != point


def best_of(sampler: str, seed: int, asks: int) -> float:
    found = [simulated.microseconds(SPACE.point(index)) for index in run(sampler, seed, asks)]
    faults = [simulated.truth(simulated_variant(SPACE.point(index))).fault for index in run(sampler, seed, asks)]
    return min(us for us, fault in zip(found, faults, strict=True) if fault is None)


def test_evolution_beats_random() -> None:
    evolved = statistics.median(best_of("evolution", seed, 50) for seed in range(7))
    drawn = statistics.median(best_of("random", seed, 50) for seed in range(7))
    assert evolved < drawn
    assert evolved <= 1.12 * 50.0
