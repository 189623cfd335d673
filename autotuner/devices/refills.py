"""What an audit writes between two forwards: the half of it that is the same on every kind of device."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from autotuner.devices.bench import FILLS
from autotuner.gate.recheck import AUDIT, JudgeFresh
from autotuner.ops import op_of
from autotuner.ops.tensors import Tensors, all_same_bits, overwrite
from autotuner.values.problem import Problem
from autotuner.values.verdict import Fault, Verdict

MOST_BYTES = 256 << 20
"""Bytes at most of the copies of inputs and outputs that a sample of the variant and one of the baseline are refilled
with, and as many once more of the workspace; but for what two calls and one workspace take."""

T = TypeVar("T")


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

    @property
    def beside(self) -> Buffers:
        """The same inputs with copies of the rest: what is refilled around a baseline, whose outputs are its own."""
        outputs, workspace = (tuple(each.clone() for each in part) for part in (self.outputs, self.workspace))
        return Buffers(self.inputs, outputs, workspace)

    def most_calls(self, wanted: int) -> int:
        """Forwards of a sample, where time asks for `wanted`."""
        return max(2, min(wanted, _fitting((*self.inputs, *self.outputs))))

    def workspaces(self, calls: int) -> int:
        """Workspaces that so many calls are refilled with in turn, where there is any. It may be far larger than inputs
        and outputs, and what poisons one call's poisons the next one's too: no call can leave anything in it."""
        return max(1, min(calls, len(FILLS), _fitting(self.workspace)))


def _fitting(tensors: Tensors) -> int:
    """Copies of these that the refills of the variant and the baseline may have each."""
    return MOST_BYTES // max(1, 2 * sum(tensor.nbytes for tensor in tensors))


class Refills:
    """Copies into an arm's buffers before each forward of a sample: of what is there anyway, or of fresh inputs and
    poison. Both are the same copies between the same addresses, so that they take the same time."""

    def __init__(self, problem: Problem, buffers: Buffers, plain: Tensors, calls: int) -> None:
        """`plain`: ordinary inputs, which the buffers hold now; their outputs and workspace are those of a forward."""
        self._problem, self._buffers, self.calls = problem, buffers, calls
        self.still = tuple(tensor.clone() for tensor in buffers.all)
        """What the buffers hold anyway."""
        self._draw = random.Random()
        self._drawn = tuple(map(torch.stack, zip(*(self._other(plain) for _ in range(calls)), strict=True)))
        """Inputs that no call has seen, a set each; the sets are the first dimension, here and in what comes next."""
        self._stacks = tuple(_stacked(tensor, calls) for tensor in (*buffers.inputs, *buffers.outputs))
        self._sources = list(zip(*(stack.unbind() for stack in self._stacks), strict=True))
        self._workspaces = [_like(buffers.workspace) for _ in range(buffers.workspaces(calls))]
        self._kept = [_like(buffers.outputs) for _ in range(calls)]
        self._is_fresh = False

    def load(self, fresh: bool) -> None:
        """Chooses what the next sample is refilled with. Nothing fresh comes twice.

        Fresh tensors are drawn for both kinds: what a device has done before a sample changes its clock.
        """
        self._is_fresh = fresh
        self._drawn = self._other(self._drawn)
        unwritten = tuple(torch.full_like(stack, float("nan")) for stack in self._stacks[len(self._drawn) :])
        for stack, drawn, still in zip(self._stacks, (*self._drawn, *unwritten), self.still, strict=False):
            stack.copy_(drawn if fresh else still)
        for source in self._workspaces:
            word = self._draw.choice(FILLS)
            poison = tuple(torch.full_like(tensor, word) for tensor in self._buffers.workspace)
            overwrite(source, poison if fresh else self.still[len(self._stacks) :])

    def _other(self, inputs: Tensors) -> Tensors:
        return op_of(self._problem).tensors().fresh(self._problem, inputs, self._draw.getrandbits(60))

    def fresh_inputs(self, call: int) -> Tensors:
        """Those that were drawn for the forward of that number."""
        return self._sources[call][: len(self._buffers.inputs)]

    def put(self, call: int) -> None:
        """Before the forward of that number."""
        workspace = self._workspaces[call % len(self._workspaces)]
        overwrite(self._buffers.all, (*self._sources[call], *workspace))

    def keep(self, call: int) -> None:
        """After the forward of that number: what it wrote."""
        overwrite(self._kept[call], self._buffers.outputs)

    def around(self, forward: Callable[[], T]) -> list[T]:
        """What each forward of a sample gives; before it its buffers are refilled, and after it its outputs kept."""
        given: list[T] = []
        for call in range(self.calls):
            self.put(call)
            given.append(forward())
            self.keep(call)
        return given

    def fault(self, forward: Callable[[], object], judge: JudgeFresh) -> Fault | None:
        """Whether the last sample with fresh inputs was right: one forward by the reference, and every forward by the
        bits that the same inputs give once more, where the outputs hold numbers as plausible as wrong."""
        if not self._is_fresh:
            raise ValueError("the last sample had no fresh inputs")
        chosen = self._draw.randrange(self.calls)
        fault = judge(self.fresh_inputs(chosen), self._kept[chosen])
        if fault is not None:
            return fault
        for call in self._draw.sample(range(self.calls), self.calls):
            self.put(call)
            for output, kept in zip(self._buffers.outputs, self._kept[call], strict=True):
                output.copy_(kept).neg_()
            forward()
            if not all_same_bits(self._kept[call], self._buffers.outputs):
                detail = (
                    "fresh inputs gave other bits when the same forward was run on them where the outputs held numbers"
                )
                return Fault(verdict=Verdict.NONDETERMINISTIC, code=AUDIT, detail=detail)
        return None


def _like(tensors: Tensors) -> Tensors:
    return tuple(torch.empty_like(tensor) for tensor in tensors)


def _stacked(tensor: Tensor, count: int) -> Tensor:
    """So many that lie as it does; the new ones are the first dimension."""
    strides = torch.empty_like(tensor).stride()
    shape, dense = (count, *tensor.shape), (tensor.numel(), *strides)
    return torch.empty_strided(shape, dense, dtype=tensor.dtype, device=tensor.device)
