"""The driver on the fake backend, with an executor that ends its jobs in any order."""

import random
from collections.abc import Callable
from typing import Any

import optuna
import pytest

from autotuner.run.executor import Executor
from autotuner.run.jobs import AnyJob, CalibrationJob, JudgeJob, Result
from autotuner.spaces.space import Space
from autotuner.store import Store
from autotuner.tuning.run.driver import Budget, Driver, Event
from autotuner.tuning.run.plan import Plan
from autotuner.values.conditions import Conditions
from tests.helpers import simulated
from tests.helpers.fake_line import FakeLine
from tests.helpers.inline_executor import InlineExecutor

SPACE = simulated.space()
SMALL = simulated.small_space()
WIDE = 4

at_any_width = pytest.mark.parametrize("width", [pytest.param(1, marks=pytest.mark.slow), WIDE])


class Shuffled(InlineExecutor):
    """Finishes jobs in any order, and sees to it that the driver sends no more than it may."""

    def __init__(self, backend: FakeLine, width: int) -> None:
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
    by: FakeLine | Executor,
    listen: Callable[[Event], None] = lambda _: None,
    *,
    width: int = 1,
    space: Space = SPACE,
    conditions: Conditions | None = None,
    **plan: Any,
) -> Driver:
    """Of a study of that space. A line's jobs end in any order, and no more than `width` are sent."""
    executor = Shuffled(by, width) if isinstance(by, FakeLine) else by
    return Driver(store, executor, Plan(space, simulated.DEVICE, conditions or simulated.conditions(), **plan), listen)


def swept(
    store: Store, by: FakeLine | Executor, trials: int, listen: Callable[[Event], None] = lambda _: None, **plan: Any
) -> str:
    """Runs such a driver; the study's name."""
    made = driver(store, by, listen, **plan)
    made.run(Budget(trials=trials))
    return made.name


def trials_of(store: Store, name: str) -> list[optuna.trial.FrozenTrial]:
    return optuna.load_study(study_name=name, storage=store.optuna_storage()).get_trials()
