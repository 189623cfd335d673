"""A simulated machine that something disturbs, on a clock of its own: nothing here takes time."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from autotuner.race import thermometer
from autotuner.race.arms import Tracks
from autotuner.run.jobs import Result
from autotuner.run.line import Passed
from autotuner.store import Store
from autotuner.tuning.run import calm
from autotuner.tuning.run import driver as driver_module
from autotuner.tuning.run.calm import Caution
from autotuner.tuning.run.driver import Budget, Driver, Event
from autotuner.tuning.run.plan import Plan
from autotuner.values.conditions import Conditions
from autotuner.values.gate_report import GateReport
from autotuner.values.outcome import Artifact, Calibration, Say
from autotuner.values.variant import Value, Variant
from tests.helpers import simulated
from tests.helpers.fake_line import FakeLine, Truth
from tests.helpers.inline_executor import InlineExecutor

BASELINE_US = 100.0
SHARE = 0.3
"""Of a disturbance a variant feels less than the baseline: its speedup looks better than it is."""


class Machine:
    """A clock, and how many times slower the baseline is at a moment."""

    def __init__(self, patch: pytest.MonkeyPatch, slow: Callable[[float], float] = lambda _: 1.0) -> None:
        """`slow`: 1 is undisturbed; of the seconds since the machine was made."""
        self.now = 0.0
        self.slow = slow
        self.job_s = 1.0
        """What a job takes, by this clock."""
        self.heard: list[Event] = []
        self.who: str | Callable[[float], str] = "make (pid 7)"
        """Who is seen to disturb; or by the seconds, as `slow`."""
        self.burns: dict[str, Value] | None = None
        """The point of a variant beside which the baseline takes as long as under a disturbance."""
        clock = SimpleNamespace(monotonic=lambda: self.now, sleep=self._sleep)
        for module in (calm, driver_module, thermometer):
            patch.setattr(module, "time", clock)

    def _sleep(self, seconds: float) -> None:
        self.now += seconds

    def _who_disturbs(self) -> str:
        return self.who if isinstance(self.who, str) else self.who(self.now)

    @property
    def factor(self) -> float:
        """Of the baseline, now."""
        return self.slow(self.now)

    def run(
        self,
        store: Store,
        trials: int,
        caution: Caution | None = None,
        width: int = 1,
        built_from: str = "",
        sampler: str = "evolution",
    ) -> str:
        """A run of the simulated study; its name."""
        plan = Plan(
            simulated.small_space(),
            simulated.DEVICE,
            simulated.conditions(),
            sampler=sampler,
            built_from=built_from,
            who_disturbs=self._who_disturbs,
        )
        driver = Driver(store, _Executor(self, width), plan, self.heard.append)
        driver.run(Budget(trials=trials), caution)
        return driver.name


class _Line(FakeLine):
    """Everything is slower while the machine is disturbed."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(lambda variant: Truth(us=simulated.microseconds(variant.point) * machine.factor**SHARE))
        self._machine = machine
        self._beside: Variant | None = None
        """The variant that has passed the gate and is timed next."""

    def calibrate(self, conditions: Conditions, say: Say) -> Calibration:
        self._baseline_us = BASELINE_US * self._machine.factor
        return super().calibrate(conditions, say)

    def check(self, artifact: Artifact, conditions: Conditions, say: Say, passed: Passed | None = None) -> GateReport:
        self._beside = artifact.variant
        return super().check(artifact, conditions, say, passed)

    def tracks(self, conditions: Conditions) -> Tracks:
        burning = self._beside is not None and self._beside.point == self._machine.burns
        self._baseline_us, self._beside = BASELINE_US * (2 if burning else self._machine.factor), None
        return super().tracks(conditions)


class _Executor(InlineExecutor):
    """Jobs take time."""

    def __init__(self, machine: Machine, width: int) -> None:
        super().__init__(_Line(machine), width)
        self._machine = machine

    def wait(self, timeout: float | None = None) -> tuple[int, Result] | None:
        self._machine.now += self._machine.job_s if self._waiting else 0.0
        return super().wait(timeout)
