"""An audit on the CPU: single forwards by the clock, with refills between them."""

from __future__ import annotations

import math
from collections.abc import Callable
from time import perf_counter_ns

import torch

from autotuner.devices.cpu.timing import SAMPLE_S, Arm, VariantArm, stay_awake
from autotuner.devices.refills import Buffers, Refills
from autotuner.ops.tensors import Tensors, on_one_thread
from autotuner.values.verdict import Fault


class AuditArm:
    """Samples of an arm with refills between the forwards; the refills are not timed. A sample is its shortest forward:
    what disturbs the others makes them longer, and nothing makes an honest one shorter."""

    def __init__(self, arm: Arm, buffers: Buffers, judge: Callable[[Tensors, Tensors], Fault | None]) -> None:
        sets = arm.sets
        sets.restore(0)
        self._arm, self._judge = arm, judge
        seconds = self._timed()
        if seconds < SAMPLE_S:  # else a sample has as few forwards as there may be, whatever the second one takes
            seconds = max(seconds, self._timed())  # which may find an answer of the first
        calls = buffers.most_calls(math.ceil(SAMPLE_S / seconds))
        self._refills = Refills(sets.problem, buffers, sets.plain, calls)

    def __call__(self, fresh: bool) -> float:
        arm, refills = self._arm, self._refills
        taken: list[float] = []
        with on_one_thread():
            refills.load(fresh)
        stay_awake(arm.sets, arm.threads)
        for call in range(refills.calls):
            with on_one_thread():
                refills.put(call)
            taken.append(self._timed())
            with on_one_thread():
                refills.keep(call)
        arm.sets.restore(0)
        arm.sets.rest()
        return min(taken)

    def _timed(self) -> float:
        """Seconds of one forward."""
        started = perf_counter_ns()
        self._forward()
        return (perf_counter_ns() - started) / 1e9

    def recheck(self) -> Fault | None:
        fault = self._refills.fault(self._forward, self._judge)
        self._arm.sets.restore(0)
        return fault

    def _forward(self) -> None:
        self._arm.forward(0)


def of_variant(arm: VariantArm, judge: Callable[[Tensors, Tensors], Fault | None]) -> AuditArm:
    """The audit of a variant's arm."""
    workspace = arm.workspace.bytes.view(torch.int32)
    return AuditArm(arm, Buffers(arm.sets.inputs[0], arm.outputs.tensors[0], (workspace,)), judge)


def of_baseline(arm: Arm, like: VariantArm) -> AuditArm:
    """The same refills around a baseline, which say what they cost: its outputs are its own, so copies of the
    variant's buffers are refilled."""
    outputs = tuple(output.clone() for output in like.outputs.tensors[0])
    workspace = like.workspace.bytes.view(torch.int32).clone()
    return AuditArm(arm, Buffers(arm.sets.inputs[0], outputs, (workspace,)), lambda inputs, outputs: None)
