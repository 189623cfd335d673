"""An audit on CUDA: a graph of forwards with refills between them, or single launches between events."""

import math
from functools import partial
from typing import Self

import torch

from autotuner.devices.cuda.captured import captured
from autotuner.devices.cuda.rest import made_at_rest, own_work_s
from autotuner.devices.cuda.timing import GRAPH_S, SINGLE_S, BaselineArm, CudaVariantArm, device_faults, elapsed
from autotuner.devices.refills import Buffers, Refills
from autotuner.gate.recheck import JudgeFresh
from autotuner.values.verdict import Fault


class CudaAuditArm:
    """Samples of an arm with refills between the forwards: timed too in a graph, not between events."""

    def __init__(
        self, arm: CudaVariantArm | BaselineArm, buffers: Buffers, judge: JudgeFresh, like: Self | None = None
    ) -> None:
        """`like`: whose samples these are compared with, so that in both the refills are timed, or in neither."""
        self._sets, self._judge, self._forward = arm.sets, judge, partial(arm.forward, 0)
        with device_faults():
            self._sets.restore()
            self._forward()
            seconds = min(elapsed(self._forward, behind=True) for _ in range(3))
            calls = buffers.most_calls(math.ceil(GRAPH_S / seconds))
            self._refills = Refills(self._sets.problem, buffers, self._sets.plain, calls)
            in_graph = seconds < SINGLE_S if like is None else like._graph is not None
            self._graph: torch.cuda.CUDAGraph | None = made_at_rest(self._captured, own_work_s) if in_graph else None

    def _captured(self) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        with captured(graph):
            self._refills.around(self._forward)
        return graph

    def __call__(self, fresh: bool) -> float:
        with device_faults():
            self._refills.load(fresh)
            self._sets.fill_cache()  # what is fresh came through it, and left fewer refills there than still ones
            if self._graph is None:
                seconds = sum(self._refills.around(self._single))
            else:
                seconds = elapsed(self._graph.replay, behind=True)
            self._sets.restore()
            return seconds / self._refills.calls

    def _single(self) -> float:
        if self._sets.cold:
            self._sets.flush.zero_()
        return elapsed(self._forward)

    def recheck(self) -> Fault | None:
        self(fresh=True)
        with device_faults():
            fault = self._refills.fault(self._forward, self._judge)
            self._sets.restore()
            return fault


def buffers_of(arm: CudaVariantArm) -> Buffers:
    """Those of a variant, which around the baseline say what refills cost (`Buffers.beside`)."""
    whole = arm.workspace[: arm.workspace.numel() // 2 * 2]
    workspace = (whole.view(torch.int32),) if whole.numel() else ()
    return Buffers(arm.sets.inputs[0], arm.outputs.tensors[0], workspace)
