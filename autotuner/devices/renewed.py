"""Inputs that become other ones between samples: the half of it that is the same on every kind of device."""

import random

import torch

from autotuner.ops import op_of
from autotuner.ops.tensors import Symmetry, Tensors, overwrite, same_bits
from autotuner.values.problem import Problem


class RenewedSets:
    """Input sets that get other inputs together, by symmetries of the op: what an earlier call has computed is of no
    use to a later one. `stacked`: their tensors; the sets are the first dimension."""

    symmetry: Symmetry | None = None
    """What made the inputs out of the plain ones; None: they are plain."""

    def __init__(self, problem: Problem, plain: Tensors, stacked: Tensors, draw: random.Random) -> None:
        self.problem, self.op, self.plain = problem, op_of(problem), plain
        self.stacked, self._draw = stacked, draw

    def renew(self) -> None:
        """Other inputs for every set."""
        seed, device = self._draw.getrandbits(60), self.plain[0].device
        self.symmetry = self.op.tensors().symmetry(self.problem, seed, len(self.stacked[0]), device)
        self.symmetry.inputs(self.plain, self.stacked)

    def restore(self, others: Tensors = ()) -> None:
        """The plain inputs for every set, or others."""
        overwrite(self.stacked, _spread(others or self.plain, self.stacked))
        self.symmetry = None

    def outputs(self, plain: Tensors, into: Tensors) -> None:
        """What the inputs give in every set, where the plain ones give `plain`."""
        if self.symmetry is None:
            overwrite(into, _spread(plain, into))
        else:
            self.symmetry.outputs(plain, into)

    def changed(self) -> str | None:
        """Which input is not what it must be, in words."""
        right = _spread(self.plain, self.stacked)
        if self.symmetry is not None:
            right = tuple(torch.empty_like(stacked) for stacked in self.stacked)
            self.symmetry.inputs(self.plain, right)
        given = zip(self.op.inputs(self.problem), self.stacked, right, strict=True)
        changed = (each.name for each, now, then in given if not same_bits(now, then))
        return next((f"{name} of a timed set changed while it was timed" for name in changed), None)


def _spread(plain: Tensors, over: Tensors) -> Tensors:
    return tuple(tensor.expand_as(stacked) for tensor, stacked in zip(plain, over, strict=True))
