"""The tensors of a race, the same on every kind of device: sets of inputs, a variant's own outputs, and what is looked
at after each sample and after the race.

A kind of device brings the memory that they lie in and what takes the samples.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import torch
from torch import Tensor

from autotuner.gate.recheck import Timed
from autotuner.ops import op_of
from autotuner.ops.tensors import Symmetry, Tensors, all_same_bits
from autotuner.values.problem import Problem
from autotuner.values.verdict import Fault

LOOKED_AT = 16
"""Groups of input sets at most that are compared after a race."""

FIRST = (0,)
"""The first group, which is all sets where they are written at once."""

INTEGERS = {2: torch.int16, 4: torch.int32}
"""By the bytes of an element."""

Used = Mapping[int, slice]
"""Which sets a sample has used: of the groups of these numbers, those in the slices."""


def bits(tensor: Tensor) -> Tensor:
    """The tensor as integers. It is the same memory: who looks again sees what has been written since."""
    return tensor.view(INTEGERS[tensor.element_size()])


class Memory(Protocol):
    """Guarded memory that holds the same tensors several times, a set each. Sets that are written at once are a group:
    a GPU writes all of them, a CPU one after another."""

    sets: list[Tensors]
    groups: list[Tensors]
    """The same tensors, those of a group as one with the sets as first dimension."""

    def damage(self) -> str | None:
        """What was written around a tensor, in words."""


class Samples(Protocol):
    """What takes the samples of an arm."""

    last: int
    """The set of the last forward."""

    @property
    def used(self) -> Used:
        """Which sets `replay` uses."""

    def replay(self) -> None:
        """The last timed forwards once more, untimed; that of `last` at the end."""


class InputSets:
    """Copies of one problem's inputs at different addresses. `cold`: with their outputs they are together more than the
    last cache holds, so that a set has left it when its turn comes again; else there is one set.

    After every sample the groups that it used get other inputs, by symmetries of the op: what an earlier call has
    computed is of no use to a later one.
    """

    def __init__(self, problem: Problem, plain: Tensors, memory: Memory, cold: bool) -> None:
        """`memory` holds the plain inputs, or gets them by `restore`."""
        self.problem, self.op, self.plain, self.memory, self.cold = problem, op_of(problem), plain, memory, cold
        self.inputs = memory.sets
        self.symmetries: list[Symmetry | None] = [None] * len(memory.groups)
        """What made the inputs of each group out of the plain ones; None: they are plain."""
        self.changes = 0
        """How often inputs were made anew."""
        self._draw = random.Random()

    def __len__(self) -> int:
        return len(self.inputs)

    def renew(self, groups: Iterable[int] = FIRST) -> None:
        """Other inputs for every set of these groups."""
        self.changes += 1
        for group in groups:
            stacked, seed = self.memory.groups[group], self._draw.getrandbits(60)
            count, device = len(stacked[0]), self.plain[0].device
            found = self.op.tensors().symmetry(self.problem, seed, count, device)
            found.inputs(self.plain, stacked)
            self.symmetries[group] = found

    def restore(self, groups: Iterable[int] = FIRST) -> None:
        """The plain inputs for every set of these groups."""
        self.changes += 1
        for group in groups:
            for stacked, plain in zip(self.memory.groups[group], self.plain, strict=True):
                stacked.copy_(plain.expand_as(stacked))
            self.symmetries[group] = None

    def outputs(self, group: int, plain: Tensors, into: Tensors) -> None:
        """What the inputs of a group give, where the plain ones give `plain`."""
        symmetry = self.symmetries[group]
        if symmetry is None:
            for stacked, tensor in zip(into, plain, strict=True):
                stacked.copy_(tensor.expand_as(stacked))
        else:
            symmetry.outputs(plain, into)

    def changed(self, groups: Iterable[int] = FIRST) -> str | None:
        """Which input of these groups is not what it must be, in words."""
        for group in groups:
            now, symmetry = self.memory.groups[group], self.symmetries[group]
            right = tuple(torch.empty_like(stacked) for stacked in now)
            if symmetry is None:
                right = tuple(plain.expand_as(stacked) for plain, stacked in zip(self.plain, now, strict=True))
            else:
                symmetry.inputs(self.plain, right)
            flags = torch.stack([(bits(one) != bits(two)).any() for one, two in zip(now, right, strict=True)])
            for given, flag in zip(self.op.inputs(self.problem), flags.tolist(), strict=True):
                if flag:
                    return f"{given.name} of a timed set changed while it was timed"
        return None

    def fresh_outputs(self) -> Tensors:
        """Tensors for the outputs of one set."""
        return self.op.tensors().outputs(self.problem, self.inputs[0])


def set_count(problem: Problem, cold: bool, cache_bytes: int) -> int:
    """How many sets there are for a cache of that size."""
    return math.ceil(5 * cache_bytes / problem.bytes) + 1 if cold else 1


class Outputs:
    """The outputs of each input set, poisoned."""

    def __init__(self, sets: InputSets, memory: Memory) -> None:
        self._sets, self.memory, self.tensors = sets, memory, memory.sets
        self._due = tuple(
            torch.empty(stacked.shape, dtype=stacked.dtype, device=stacked.device) for stacked in memory.groups[0]
        )

    def poison(self, groups: Iterable[int] = FIRST) -> None:
        """Makes all outputs of these groups NaN."""
        for group in groups:
            for stacked in self.memory.groups[group]:
                stacked.fill_(torch.nan)

    def due(self, group: int, plain: Tensors) -> Tensors:
        """What the group's outputs must be, where the plain inputs give `plain`; until it is asked again."""
        self._sets.outputs(group, plain, self._due)
        return self._due

    def unlike(self, plain: Tensors, used: Used) -> Tensor:
        """Whether an output of these sets is not the one that the set's inputs make, where the plain ones give `plain`:
        a tensor, so that nobody waits for it. 0 and -0 are equal, NaN is like nothing."""
        found: list[Tensor] = []
        for group, some in used.items():
            pairs = zip(self.memory.groups[group], self.due(group, plain), strict=True)
            found += [(now[some] != then[some]).any() for now, then in pairs]
        return torch.stack(found).any()


class Results:
    """What the forwards of a variant leave in a race."""

    def __init__(
        self,
        outputs: Outputs,
        sets: InputSets,
        plain: Tensors,
        around: Callable[[], str | None],
        judge: Callable[[Timed], Fault | None],
    ) -> None:
        """`plain`: what it gives on the plain inputs. `around`: what was written around its workspace, in words.
        `judge` is G7."""
        self._outputs, self._sets, self.plain, self._around, self._judge = outputs, sets, plain, around, judge
        self._strays = torch.zeros((), dtype=torch.bool, device=sets.plain[0].device)

    def settle(self, used: Used) -> None:
        """After a sample: each of its outputs must be the one that its inputs make. Then outputs are poisoned, and the
        sets get other inputs."""
        self._strays |= self._outputs.unlike(self.plain, used)
        self._prepare(used)

    def _prepare(self, used: Used) -> None:
        self._outputs.poison(used)
        self._sets.renew(used)

    def damage(self) -> str | None:
        """What was written around a buffer, in words."""
        return self._sets.memory.damage() or self._outputs.memory.damage() or self._around()

    def recheck(self, samples: Samples, busy: str | None, seen: str | None = None) -> Fault | None:
        """G7 after a race. `busy`: what goes on, `seen`: which buffer was not what it must be, where the device's own
        looks have found it already; in words."""
        sets, outputs, used = self._sets, self._outputs, samples.used
        self._prepare(used)
        samples.replay()
        self._strays |= outputs.unlike(self.plain, used)
        strays = "the output of a timed forward is not the one that its inputs make" if self._strays else None
        groups = range(len(sets.memory.groups))
        strays = seen or sets.changed(random.sample(groups, min(LOOKED_AT, len(groups)))) or strays
        sets.restore(used)
        outputs.poison(used)
        samples.replay()
        last = outputs.tensors[samples.last]
        if strays is None and not all_same_bits(last, self.plain):
            strays = "two timed launches on equal inputs gave different bits"
        return self._judge(Timed(sets.inputs[samples.last], last, self.damage(), strays, samples.replay, busy))
