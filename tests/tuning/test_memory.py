"""A long sweep needs no more memory and no more open files than a short one, but for a few KB a trial."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from autotuner.store import Store
from autotuner.tuning.finals.plan import contenders, searched
from autotuner.tuning.run.driver import Budget, Driver, Event, Judged
from autotuner.tuning.run.plan import Plan
from autotuner.values.outcome import Artifact, Measurement, Outcome
from tests.helpers import simulated
from tests.helpers.inline_executor import InlineExecutor

MOST_A_TRIAL = 6_000
"""Bytes that may stay of a trial: Optuna's trial and its point take half of them, an outcome of the fake line 14,000
and a real one 55,000."""
IN_HAND = 8
"""Outcomes that may be alive at a time: the incumbent's, and what is being told."""


class Seen(NamedTuple):
    """What a driver's process holds at a moment."""

    bytes: int
    alive: int
    files: int


def _alive() -> int:
    return max(sum(type(each) is kind for each in gc.get_objects()) for kind in (Outcome, Measurement, Artifact))


def _now() -> Seen:
    gc.collect()
    return Seen(tracemalloc.get_traced_memory()[0], _alive(), len(list(Path("/proc/self/fd").iterdir())))


@contextmanager
def _traced() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()


def _swept(store: Store, at: tuple[int, int]) -> tuple[list[Seen], str]:
    """What is held after each number of trials of `at`; the sweep's study."""
    seen: dict[int, Seen] = {}

    def look(event: Event) -> None:
        if isinstance(event, Judged) and event.judged in at and event.judged not in seen:
            seen[event.judged] = _now()

    plan = Plan(simulated.large_space(), simulated.DEVICE, simulated.conditions(), sampler="random")
    driver = Driver(store, InlineExecutor(simulated.backend(0.005), 2), plan, look)
    driver.run(Budget(trials=at[1]))
    return [seen[judged] for judged in at], driver.name


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("at", [(40, 200), (300, 1000)])
def test_a_long_sweep_keeps_what_decisions_need_and_no_outcome(tmp_path: Path, at: tuple[int, int]) -> None:
    before = _alive()
    with Store.open(str(tmp_path / "studies.db")) as store, _traced():
        (early, late), study = _swept(store, at)
        assert late.alive - before <= IN_HAND
        assert (late.bytes - early.bytes) / (at[1] - at[0]) < MOST_A_TRIAL
        assert late.files <= early.files
        found = searched(store.outcomes(study))
        assert contenders(found, "no default")
        gc.collect()
        assert _alive() - before <= IN_HAND, "finals read outcomes one by one"
        assert len(found) > at[0]
