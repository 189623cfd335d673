"""The CPU in a process that judges variants there, and draws what it would time."""

import os

from autotuner.devices.cpu.device import CpuProcess
from autotuner.gate.recheck import JudgesOf
from autotuner.race.arms import Track
from autotuner.values.conditions import Conditions
from autotuner.values.problem import Problem
from autotuner.values.variant import Variant
from drawn_cpu import BASELINE_US, microseconds
from tests.helpers.fake_line import Deviations, FakeLine, Truth

DEVIATIONS = Deviations(noise=0.005, spikes=0.02, process=0.002)


class DrawnProcess(CpuProcess):
    """Builds, the gate and the deaths of processes are real."""

    def track(self, conditions: Conditions, problem: Problem, judges: JudgesOf) -> Track:
        line = FakeLine(_truth, BASELINE_US, deviations=DEVIATIONS, seed=os.getpid())
        return line.tracks(conditions.model_copy(update={"problems": (problem,)}))[0]


def _truth(variant: Variant) -> Truth:
    return Truth(us=microseconds(variant))
