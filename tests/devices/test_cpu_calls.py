"""How many forwards it takes to choose how many there are in a sample on the CPU."""

from __future__ import annotations

import time

from autotuner.devices.cpu.audit import AuditArm
from autotuner.devices.cpu.timing import LONG_S, Arm, InputSets
from autotuner.devices.refills import Buffers
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.ops.sdpa.tensors import inputs

PROBLEM = SdpaProblem.parse("(1,2,16,16) float32 full")


def test_one_long_forward_is_enough_for_a_race_and_for_an_audit() -> None:
    calls: list[int] = []

    def forward(index: int) -> None:
        calls.append(index)
        time.sleep(1.2 * LONG_S)

    sets = InputSets(PROBLEM, inputs(PROBLEM, "randn", 1), "warm", 0)
    arm = Arm(forward, sets, 1)
    assert (arm.calls, len(calls)) == (1, 2)  # one to begin with
    buffers = Buffers(sets.inputs[0], (sets.inputs[0][0].clone(),), ())
    audit = AuditArm(arm, buffers, lambda inputs, outputs: None, arm.seconds)
    assert len(calls) == 3
    assert audit(fresh=True) > LONG_S
    assert len(calls) == 5  # the second one may find what the first has left
