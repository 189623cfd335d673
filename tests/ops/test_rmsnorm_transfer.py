"""Transfer between sizes of rmsnorm: a sweep of other rows begins from what was found of the first ones, on a fake
device."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from autotuner.spaces.space import Space
from autotuner.store import Store, StudyRecord, queries
from autotuner.tuning import transfer
from autotuner.tuning.run.driver import Budget, Driver
from autotuner.tuning.run.plan import Plan, Start
from autotuner.tuning.workbench import load_space
from autotuner.values.conditions import Conditions
from autotuner.values.outcome import Device
from autotuner.values.variant import Variant
from tests.helpers import simulated
from tests.helpers.fake_line import FakeLine, Truth
from tests.helpers.inline_executor import InlineExecutor

pytest.importorskip("autotuner.ops.rmsnorm")
FACTS = {"THREADS_ALLOWED": 2, "CPU_VECTOR_BYTES": 32, "CPU_FMA": True, "CPU_BF16_DOT": False}
DEVICE = Device(
    backend="cpu",
    name="simulated",
    environment={"os": "none"},
    facts={**FACTS, "L1D_BYTES": 1 << 15, "L2_BYTES": 1 << 20, "L3_BYTES": 1 << 25},
)
FIRST, SECOND = "(512,4096) float32", "(4096,1024) float32"
TRIALS = 30


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with closing(Store.open(str(tmp_path / "studies.db"))) as opened:
        yield opened


def space_of(problem: str) -> Space:
    """The shipped space for other rows."""
    return Space.enumerate(load_space("rmsnorm_cpu", problems=[problem]), DEVICE.facts)


def conditions_of(space: Space) -> Conditions:
    return simulated.conditions().model_copy(update={"problems": space.file.problems})


def record_of(space: Space) -> StudyRecord:
    return Plan(space, DEVICE, conditions_of(space), built_from="").record


def cost(variant: Variant) -> float:
    """How much slower a variant is than the best, as a logarithm: the same for rows of any length."""
    point = variant.point
    found = 0.0 if point["IMPL"] == "simd" else 0.9
    for name, best, weight in (("UNROLL", 4, 0.1), ("VEC_WIDTH", 8, 0.2), ("ROWS", 2, 0.15), ("THREADS", 2, 0.5)):
        found += weight * abs(math.log2(int(point.get(name, 1)) / best))
    return found + 0.2 * int(point.get("STREAM", 0)) + 0.002 * abs(int(point.get("PREFETCH", 0)) - 8)


def search(store: Store, space: Space, trials: int, found: Start) -> list[float]:
    """The costs of what a sweep has judged, in their order."""
    (problem,) = space.file.problems
    moved_us = problem.bytes / 1e5
    line = FakeLine(lambda variant: Truth(us=moved_us * math.exp(cost(variant))), baseline_us=2 * moved_us)
    driver = Driver(store, InlineExecutor(line), Plan(space, DEVICE, conditions_of(space), start=found))
    driver.run(Budget(trials=trials))
    return [cost(Variant.of("rmsnorm", "cpu", trial.point)) for trial in queries.judged(store, driver.name)]


def test_other_rows_begin_from_what_was_found(store: Store) -> None:
    one, other = space_of(FIRST), space_of(SECOND)
    cold = search(store, one, TRIALS, Start())
    found = transfer.start(store, record_of(other), other)
    assert found.known_points is not None
    assert found.known_points.study == record_of(one).name
    assert len(found.known_points.points) == TRIALS
    warm = search(store, other, 3, found)
    assert warm[0] < cold[0]  # a search that knows nothing begins with the default point
