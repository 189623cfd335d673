"""What an audit writes between two forwards: the half of it that is the same on every kind of device."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

import torch

from autotuner.gate.recheck import AUDIT
from autotuner.ops import op_of
from autotuner.ops.tensors import Tensors, all_same_bits
from autotuner.values.problem import Problem
from autotuner.values.verdict import Fault, Verdict

MOST_BYTES = 256 << 20
"""Bytes at most that the refills of a sample take."""
WORKSPACE_FILLS = (0x7FFF7FFF, 0x7BFF7BFF, 0)
"""Words of which a poisoned workspace is full: a NaN, a large number, zero."""


class Buffers(NamedTuple):
    """The tensors of an arm that is audited."""

    inputs: Tensors
    outputs: Tensors
    workspace: Tensors
    """None or one, of int32."""

    @property
    def all(self) -> Tensors:
        """In that order."""
        return (*self.inputs, *self.outputs, *self.workspace)


def most_calls(problem: Problem, wanted: int) -> int:
    """Forwards of a sample, where time asks for `wanted`."""
    return max(2, min(wanted, MOST_BYTES // (2 * problem.bytes)))


class Refills:
    """Copies into an arm's buffers before each forward of a sample: of what is there anyway, or of fresh inputs and
    poison. Both are the same copies between the same addresses, so that they take the same time."""

    def __init__(self, problem: Problem, buffers: Buffers, plain: Tensors, calls: int) -> None:
        """`plain`: ordinary inputs, which the buffers hold now; their outputs and workspace are those of a forward."""
        self._problem, self._buffers, self._plain, self.calls = problem, buffers, plain, calls
        self._still = tuple(tensor.clone() for tensor in buffers.all)
        self._sources = [tuple(torch.empty_like(tensor) for tensor in buffers.all) for _ in range(calls)]
        self._kept = [tuple(torch.empty_like(tensor) for tensor in buffers.outputs) for _ in range(calls)]
        self._draw = random.Random()
        self._is_fresh = False

    def load(self, fresh: bool) -> None:
        """Chooses what the next sample is refilled with. Nothing fresh comes twice.

        Fresh tensors are drawn for both kinds: what a device has done before a sample changes its clock.
        """
        self._is_fresh = fresh
        for source in self._sources:
            drawn = self._fresh()
            for tensor, value in zip(source, drawn if fresh else self._still, strict=True):
                tensor.copy_(value)

    def _fresh(self) -> Tensors:
        buffers = self._buffers
        inputs = op_of(self._problem).tensors().fresh(self._problem, self._plain, self._draw.getrandbits(60))
        outputs = tuple(torch.full_like(tensor, float("nan")) for tensor in buffers.outputs)
        word = self._draw.choice(WORKSPACE_FILLS)
        return (*inputs, *outputs, *(torch.full_like(tensor, word) for tensor in buffers.workspace))

    def put(self, call: int) -> None:
        """Before the forward of that number."""
        for tensor, source in zip(self._buffers.all, self._sources[call], strict=True):
            tensor.copy_(source)

    def keep(self, call: int) -> None:
        """After the forward of that number: what it wrote."""
        for kept, tensor in zip(self._kept[call], self._buffers.outputs, strict=True):
            kept.copy_(tensor)

    def fault(self, forward: Callable[[], None], judge: Callable[[Tensors, Tensors], Fault | None]) -> Fault | None:
        """Whether the last sample with fresh inputs was right: one forward by the reference, and every forward by the
        bits that the same inputs give once more."""
        if not self._is_fresh:
            raise ValueError("the last sample had no fresh inputs")
        inputs = len(self._buffers.inputs)
        chosen = self._draw.randrange(self.calls)
        fault = judge(self._sources[chosen][:inputs], self._kept[chosen])
        if fault is not None:
            return fault
        for call in self._draw.sample(range(self.calls), self.calls):
            self.put(call)
            forward()
            if not all_same_bits(self._kept[call], self._buffers.outputs):
                detail = "fresh inputs gave other bits when the same forward was run on them once more"
                return Fault(verdict=Verdict.NONDETERMINISTIC, code=AUDIT, detail=detail)
        return None
