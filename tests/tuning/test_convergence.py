"""A search that expects nothing any more says so, and ends there if it is to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from autotuner.store import Store
from autotuner.tuning.run.driver import Budget, Converged, Driver, Event, Judged
from autotuner.tuning.run.plan import Plan
from autotuner.values.variant import Variant
from tests.helpers import simulated
from tests.helpers.inline_executor import InlineExecutor

SPACE = simulated.space()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with closing(Store.open(str(tmp_path / "studies.db"))) as opened:
        yield opened


def sweep_of(store: Store, heard: list[Event], width: int, sampler: str = "evolution") -> Driver:
    executor = InlineExecutor(simulated.backend(), width)
    return Driver(store, executor, Plan(SPACE, simulated.DEVICE, simulated.conditions(), sampler=sampler), heard.append)


@pytest.mark.parametrize("width", [1, 4])
def test_a_search_that_has_converged_ends_where_it_is_to(store: Store, width: int) -> None:
    """What is left promises less than a tie long before the budget is spent, and nothing better is left indeed."""
    heard: list[Event] = []
    sweep = sweep_of(store, heard, width)
    sweep.run(Budget(trials=len(SPACE), until_converged=True))
    (converged,) = [event for event in heard if isinstance(event, Converged)]
    assert converged.promise < converged.tie
    judged = [event.outcome for event in heard if isinstance(event, Judged)]
    assert 15 < len(judged) < len(SPACE) / 2
    best = min(simulated.microseconds(SPACE.point(index)) for index in range(len(SPACE)) if works(index))
    assert min(simulated.microseconds(each.variant.point) for each in judged if each.verdict.has_latency) == best


def works(index: int) -> bool:
    return simulated.truth(Variant.of("sdpa", "cpu", SPACE.point(index))).fault is None
