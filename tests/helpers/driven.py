"""The driver on the fake backend, with an executor that ends its jobs in any order."""

import random
from collections.abc import Callable

import optuna
import pytest

from autotuner.run.jobs import AnyJob, CalibrationJob, JudgeJob, Result
from autotuner.store import Store
from autotuner.tuning.run.driver import Driver, Event
from autotuner.tuning.run.plan import Plan
from tests.helpers import simulated
from tests.helpers.fake_line import FakeLine
from tests.helpers.inline_executor import InlineExecutor

SPACE = simulated.space()
SMALL = simulated.small_space()
WIDE = 4

at_any_width = pytest.mark.parametrize("width", [1, WIDE])


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
    backend: FakeLine,
    listen: Callable[[Event], None] = lambda _: None,
    width: int = 1,
    sampler: str = "evolution",
) -> Driver:
    executor = Shuffled(backend, width)
    return Driver(store, executor, Plan(SPACE, simulated.DEVICE, simulated.conditions(), sampler=sampler), listen)


def trials_of(store: Store, name: str) -> list[optuna.trial.FrozenTrial]:
    return optuna.load_study(study_name=name, storage=store.optuna_storage()).get_trials()
