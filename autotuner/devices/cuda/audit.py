"""An audit on CUDA: a graph of forwards with refills between them, or single launches between events."""

import math
from collections.abc import Callable
from functools import partial
from typing import Self

import torch

from autotuner.devices.cuda.captured import captured
from autotuner.devices.cuda.rest import made_at_rest, own_work_s
from autotuner.devices.cuda.timing import (
    GRAPH_S,
    SINGLE_S,
    BaselineArm,
    CudaInputSets,
    CudaVariantArm,
    device_faults,
    elapsed,
)
from autotuner.devices.refills import Buffers, Refills
from autotuner.ops.tensors import Tensors
from autotuner.values.verdict import Fault


class CudaAuditArm:
    """Samples of an arm with refills between the forwards. In a graph these are timed too; between events they are
    not."""

    def __init__(
        self,
        arm: CudaVariantArm | BaselineArm,
        buffers: Buffers,
        sets: CudaInputSets,
        judge: Callable[[Tensors, Tensors], Fault | None],
        like: Self | None = None,
    ) -> None:
        """`like`: whose samples these are compared with, so that in both the refills are timed, or in neither."""
        self._sets, self._judge, self._forward = sets, judge, partial(arm.forward, 0)
        with device_faults():
            sets.restore()
            self._forward()
            seconds = min(elapsed(self._forward, behind=True) for _ in range(3))
            calls = buffers.most_calls(math.ceil(GRAPH_S / seconds))
            self._refills = Refills(sets.problem, buffers, sets.plain, calls)
            in_graph = seconds < SINGLE_S if like is None else like._graph is not None
            self._graph: torch.cuda.CUDAGraph | None = made_at_rest(self._captured, own_work_s) if in_graph else None

    def _captured(self) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        with captured(graph):
            for call in range(self._refills.calls):
                self._refills.put(call)
                self._forward()
                self._refills.keep(call)
        return graph

    def __call__(self, fresh: bool) -> float:
        with device_faults():
            self._refills.load(fresh)
            seconds = self._singly() if self._graph is None else elapsed(self._graph.replay, behind=True)
            self._sets.restore()
            return seconds / self._refills.calls

    def _singly(self) -> float:
        seconds = 0.0
        for call in range(self._refills.calls):
            self._refills.put(call)
            if self._sets.cold:
                self._sets.flush.zero_()
            seconds += elapsed(self._forward)
            self._refills.keep(call)
        return seconds

    def recheck(self) -> Fault | None:
        self(fresh=True)
        with device_faults():
            fault = self._refills.fault(self._forward, self._judge)
            self._sets.restore()
            return fault


def of_variant(
    arm: CudaVariantArm, sets: CudaInputSets, judge: Callable[[Tensors, Tensors], Fault | None]
) -> CudaAuditArm:
    """The audit of a variant's arm."""
    return CudaAuditArm(arm, _buffers(arm, sets), sets, judge)


def of_baseline(arm: BaselineArm, variant: CudaVariantArm, audited: CudaAuditArm, sets: CudaInputSets) -> CudaAuditArm:
    """The refills of a variant's audit around a baseline, which say what they cost."""
    return CudaAuditArm(arm, _buffers(variant, sets).beside, sets, lambda inputs, outputs: None, audited)


def _buffers(arm: CudaVariantArm, sets: CudaInputSets) -> Buffers:
    whole = arm.workspace[: arm.workspace.numel() // 2 * 2]
    workspace = (whole.view(torch.int32),) if whole.numel() else ()
    return Buffers(sets.inputs[0], arm.outputs.tensors[0], workspace)
