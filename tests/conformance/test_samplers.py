"""Every sampler, ours and one of another package, proposes valid points only, none twice, and the same
ones after a stop; ours find the best ones."""

from __future__ import annotations

import functools
import math
import random
import statistics
from collections.abc import Iterable
from pathlib import Path

import optuna
import pytest
from optuna.trial import Trial, TrialState

from autotuner.search.samplers import SAMPLERS
from autotuner.spaces.space import Space, SpaceFile
from autotuner.store import Store
from autotuner.values.variant import Value
from tests.helpers import simulated
from tests.helpers.searching import ask, simulated_variant

SPACE = simulated.space()

EVERY = [*sorted(SAMPLERS), "downhill"]
PLUGINS = Path(__file__).parent.parent / "plugins"


@pytest.fixture(autouse=True)
def _another_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sampler `downhill` is found."""
    monkeypatch.setattr(SAMPLERS, "_loaded", {})
    monkeypatch.syspath_prepend(PLUGINS)


def parsed(text: str) -> Space:
    return Space.enumerate(SpaceFile.parse(text, Path("changed.toml")), simulated.DEVICE.facts)


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


@pytest.mark.parametrize("sampler", EVERY)
def test_valid_points_only_and_none_twice(sampler: str) -> None:
    indices = run(sampler, seed=1, asks=60)
    assert len(set(indices)) == 60
    assert indices[0] == SPACE.default_index


@pytest.mark.parametrize("sampler", EVERY)
def test_seeds_differ_and_repeat(sampler: str) -> None:
    indices = run(sampler, 3, 15)
    assert run(sampler, 3, 15) == indices
    assert (run(sampler, 4, 15) != indices) == (sampler != "exhaustive")


@pytest.mark.parametrize("sampler", EVERY)
def test_a_resumed_study_goes_on_as_it_would_have(sampler: str, tmp_path: Path) -> None:
    """Whatever it knows is in the store's file, rejects too."""
    whole = run(sampler, 5, 70)
    parts = []
    for count in (41, 29):
        store = Store.open(f"{tmp_path}/s.db")
        study = optuna.create_study(
            storage=store.optuna_storage(), study_name="s", sampler=SAMPLERS[sampler](SPACE, 5), load_if_exists=True
        )
        parts += run(sampler, 5, count, study)
        store.close()
    assert parts == whole


def fly(sampler: str, asks: int, fresh_at: tuple[int, ...], width: int) -> list[dict[str, Value]]:
    """The points of a study with `width` in flight, which end in any order, fail and are enqueued again.

    Before each ask in `fresh_at` the sampler is made anew, as when the study is resumed.
    """
    study = optuna.create_study(sampler=SAMPLERS[sampler](SPACE, 2))
    draw, flying, points = random.Random(2), list[Trial](), list[dict[str, Value]]()
    for number in range(asks):
        if number in fresh_at:
            study.sampler = SAMPLERS[sampler](SPACE, 2)
        trial, point = ask(study, SPACE)
        points.append(point)
        flying.append(trial)
        if len(flying) == width:
            ended = flying.pop(draw.randrange(width))
            if draw.random() < 0.1:
                study.enqueue_trial(ended.params)
                study.tell(ended, state=TrialState.FAIL)
            else:
                rejected = draw.random() < 0.2
                ended.set_constraint("gate", float(rejected))
                study.tell(ended, math.inf if rejected else simulated.microseconds(ended.params))
    return points


@pytest.mark.parametrize("sampler", EVERY)
def test_a_study_resumed_in_flight_goes_on_as_it_would_have(sampler: str) -> None:
    assert fly(sampler, 90, (), 6) == fly(sampler, 90, (11, 18, 50, 51), 6)


@pytest.mark.parametrize("sampler", EVERY)
def test_the_whole_space_can_be_asked_for(sampler: str) -> None:
    text = simulated.TOML.replace("[8, 16, 32, 64, 128]", "[8]").replace("[1, 2, 4, 8]", "[1, 4]")
    small = parsed(text)
    study = optuna.create_study(sampler=SAMPLERS[sampler](small, 0))
    seen = set()
    for _ in range(len(small)):
        trial, point = ask(study, small)
        seen.add(small.index_of(point))
        study.tell(trial, 1.0)
    assert seen == set(range(len(small)))
    with pytest.raises(ValueError, match="every point"):
        ask(study, small)


@pytest.mark.parametrize("sampler", EVERY)
def test_pending_points_are_not_proposed_again(sampler: str, store: Store) -> None:
    """Of those in flight one at a time is told, in any order; one is enqueued by hand."""
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


def latencies(indices: Iterable[int]) -> list[float]:
    """The true ones, infinite for a reject."""
    truths = [simulated.truth(simulated_variant(SPACE.point(index))) for index in indices]
    return [truth.us if truth.fault is None else math.inf for truth in truths]


@functools.cache
def best_of(sampler: str, seed: int, asks: int) -> float:
    return min(latencies(run(sampler, seed, asks)))


def test_evolution_beats_random() -> None:
    evolved = statistics.median(best_of("evolution", seed, 50) for seed in range(7))
    drawn = statistics.median(best_of("random", seed, 50) for seed in range(7))
    assert evolved < drawn
    assert evolved <= 1.12 * 50.0


@pytest.mark.slow
def test_tpe_beats_random() -> None:
    found = statistics.median(best_of("tpe", seed, 90) for seed in range(5))
    assert found < statistics.median(best_of("random", seed, 90) for seed in range(5))
