"""A search that expects nothing any more says so, and ends there if it is to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from autotuner.store import Store
from autotuner.tuning.run.driver import Budget, Converged, Driver, Event, Judged
from autotuner.tuning.run.plan import Plan, Start
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


@pytest.mark.parametrize("width", [1, 4])
def test_without_that_wish_a_converged_search_goes_on(store: Store, width: int) -> None:
    heard: list[Event] = []
    sweep_of(store, heard, width).run(Budget(trials=250))
    assert sum(isinstance(event, Converged) for event in heard) >= 1
    assert sum(isinstance(event, Judged) for event in heard) == 250


def works(index: int) -> bool:
    return simulated.truth(Variant.of("sdpa", "cpu", SPACE.point(index))).fault is None


def test_a_sampler_without_beliefs_never_converges(store: Store) -> None:
    heard: list[Event] = []
    sweep_of(store, heard, 1, "random").run(Budget(trials=60, until_converged=True))
    assert not any(isinstance(event, Converged) for event in heard)
    assert sum(isinstance(event, Judged) for event in heard) == 60


def test_points_given_by_hand_promise_nothing(store: Store) -> None:
    """What was enqueued does not count as a proposal of the sampler."""
    heard: list[Event] = []
    driver = sweep_of(store, heard, 1)
    given = [SPACE.point(index) for index in range(0, len(SPACE), 13)]
    plan = Plan(SPACE, simulated.DEVICE, simulated.conditions(), start=Start(first=given))
    first = Driver(store, InlineExecutor(simulated.backend()), plan, heard.append)
    assert first.name == driver.name
    first.run(Budget(trials=len(given), until_converged=True))
    assert not any(isinstance(event, Converged) for event in heard)
