"""Every sampler, ours and one of another package, proposes valid points only, none twice, and the same
ones after a stop; ours find the best ones."""

import functools
import importlib
import math
import random
import statistics
from collections.abc import Iterable, Iterator
from pathlib import Path

import optuna
import pytest
from optuna.trial import Trial, TrialState
from threadpoolctl import threadpool_limits

from autotuner.search.samplers import SAMPLERS
from autotuner.spaces.space import Space, SpaceFile
from autotuner.store import Store
from autotuner.values.variant import Value
from tests.helpers import simulated
from tests.helpers.searching import ask, simulated_variant

SPACE = simulated.space()

MARKS = {
    "gp": pytest.mark.slow,  # a proposal of it takes a second
    **dict.fromkeys(("cmaes", "nsga2", "tpe"), pytest.mark.sampled(1, "of Optuna")),
}
EVERY = [pytest.param(name, marks=MARKS.get(name, ())) for name in (*sorted(SAMPLERS), "downhill")]
PLUGINS = Path(__file__).parent.parent / "plugins"
GP_FROM = 10
"""Trials that end before the sampler gp has a model; until then it draws, and tests of it end soon after."""


@pytest.fixture(autouse=True)
def _another_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sampler `downhill` is found."""
    monkeypatch.setattr(SAMPLERS, "_loaded", {})
    monkeypatch.syspath_prepend(PLUGINS)


@pytest.fixture(autouse=True)
def _one_thread(request: pytest.FixtureRequest) -> Iterator[None]:
    """The matrices of the sampler gp are small: beside other programs several threads make it many times slower."""
    if request.node.get_closest_marker("slow") is None:
        yield
        return
    importlib.import_module("torch")  # its threads can be limited once it is there
    with threadpool_limits(1):
        yield


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
    asks = GP_FROM + 3 if sampler == "gp" else 60
    indices = run(sampler, seed=1, asks=asks)
    assert len(set(indices)) == asks
    assert indices[0] == SPACE.default_index


@pytest.mark.parametrize("sampler", EVERY)
def test_seeds_differ_and_repeat(sampler: str) -> None:
    asks = GP_FROM + 2 if sampler == "gp" else 15
    indices = run(sampler, 3, asks)
    assert run(sampler, 3, asks) == indices
    assert (run(sampler, 4, asks) != indices) == (sampler != "exhaustive")


@pytest.mark.parametrize("sampler", EVERY)
def test_a_resumed_study_goes_on_as_it_would_have(sampler: str, tmp_path: Path) -> None:
    """Whatever it keeps between proposals is in the store's file, rejects and generations too."""
    asks, stop = (GP_FROM + 3, GP_FROM + 1) if sampler == "gp" else (70, 41)
    whole = run(sampler, 5, asks)
    parts = []
    for count in (stop, asks - stop):
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
    """Also where a generation was full while some of it were in flight."""
    asks, fresh_at, width = (GP_FROM + 6, (11, GP_FROM + 4), 3) if sampler == "gp" else (90, (11, 18, 50, 51), 6)
    assert fly(sampler, asks, (), width) == fly(sampler, asks, fresh_at, width)


@pytest.mark.parametrize("sampler", EVERY)
def test_the_whole_space_can_be_asked_for(sampler: str) -> None:
    text = simulated.TOML.replace("[8, 16, 32, 64, 128]", "[8]").replace("[1, 2, 4, 8]", "[1, 4]")
    small = parsed(text.replace("[1, 4]", "[1]") if sampler == "gp" else text)
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
    asks, width = (GP_FROM + 6, 4) if sampler == "gp" else (30, 10)
    study = optuna.create_study(sampler=SAMPLERS[sampler](SPACE, 0), storage=store.optuna_storage())
    study.enqueue_trial(dict(SPACE.point(100)))
    draw = random.Random(0)
    flying: list[Trial] = []
    points = []
    for _ in range(asks):
        trial, point = ask(study, SPACE)
        points.append(SPACE.index_of(point))
        flying.append(trial)
        if len(flying) == width:
            study.tell(flying.pop(draw.randrange(width)), simulated.microseconds(point))
    assert len(set(points)) == asks


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
@pytest.mark.sampled(1)
@pytest.mark.parametrize("sampler", ["tpe", "nsga2", "cmaes"])
def test_those_that_learn_beat_random(sampler: str) -> None:
    found = statistics.median(best_of(sampler, seed, 90) for seed in range(5))
    assert found < statistics.median(best_of("random", seed, 90) for seed in range(5))


@pytest.mark.slow
def test_the_gaussian_process_learns() -> None:
    """Half of what it proposes is among the fastest fifth of the space."""
    proposed = [index for seed in range(2) for index in run("gp", seed, GP_FROM + 6)[GP_FROM:]]
    fifth = statistics.quantiles(latencies(range(len(SPACE))), n=5)[0]
    assert statistics.median(latencies(proposed)) < fifth
