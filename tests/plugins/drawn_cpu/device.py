"""The CPU in a process that judges variants there, and draws what it would time."""

from __future__ import annotations

import os
from collections.abc import Callable

from autotuner.devices.cpu.device import CpuProcess
from autotuner.gate.recheck import Judges
from autotuner.race.arms import Tracks
from autotuner.values.conditions import Conditions
from autotuner.values.problem import Problem
from autotuner.values.variant import Variant
from drawn_cpu import BASELINE_US, microseconds
from tests.helpers.fake_line import Deviations, FakeLine, Truth

DEVIATIONS = Deviations(noise=0.005, spikes=0.02, process=0.002)


class DrawnProcess(CpuProcess):
    """Builds, the gate and the deaths of processes are real."""

    def tracks(self, conditions: Conditions, judges: Callable[[Problem], Judges]) -> Tracks:
        return FakeLine(_truth, BASELINE_US, deviations=DEVIATIONS, seed=os.getpid()).tracks(conditions)


def _truth(variant: Variant) -> Truth:
    return Truth(us=microseconds(variant))
