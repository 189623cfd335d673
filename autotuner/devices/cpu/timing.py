"""Timing on the CPU: the sides of a race, each a few forwards a sample over sets of guarded inputs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import torch
from torch import Tensor

from autotuner.build.loaded_variant import LoadedVariant
from autotuner.devices.cpu.guarded_memory import ALIGNMENT, Slab, tensor_in
from autotuner.gate.recheck import Timed
from autotuner.ops import op_of
from autotuner.ops.tensors import Tensors, same_bits
from autotuner.values.outcome import Artifact
from autotuner.values.problem import Problem
from autotuner.values.verdict import Fault

WAKE_S = 0.002
"""Untimed forwards before a sample go on for so long: threads that slept are first moved about by the scheduler."""

SAMPLE_S = 0.006
"""A sample is at least this long, to dwarf the clock's resolution and a call's overhead from Python."""

SETTLE_S = 0.015
"""Pause before a sample of several threads: threads of the other arm spin for a few milliseconds before they sleep."""


def _stay_awake(seconds: float) -> None:
    """Waits without sleeping: a thread that has slept is often woken onto the CPU of the one that wakes the others, and
    samples then fall into two groups, one of them at the speed of a single CPU."""
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def _guarded(tensor: Tensor, slabs: list[Slab]) -> Tensor:
    """A copy that ends at an unmapped page. It is written, so that no page fault is timed."""
    slab = Slab(tensor.numel() * tensor.element_size())
    slabs.append(slab)
    copy = tensor_in(slab, tensor)
    copy.copy_(tensor)
    return copy


def _damaged(slabs: list[Slab]) -> str | None:
    """What was written before or just past a tensor, in words."""
    return next((text for slab in slabs if (text := slab.damaged())), None)


class InputSets:
    """Copies of one problem's inputs at different addresses. `cold`: with their outputs they are together more than the
    last-level cache holds, so that a set has left the cache when its turn comes again; `warm`: one set."""

    def __init__(self, problem: Problem, inputs: Tensors, cache: str, cache_bytes: int) -> None:
        count = math.ceil(5 * cache_bytes / problem.bytes) + 1 if cache == "cold" else 1
        self.problem, self.op = problem, op_of(problem)
        self._slabs: list[Slab] = []
        self._expected = inputs
        self.inputs = [tuple(_guarded(x, self._slabs) for x in inputs) for _ in range(count)]
        self._next = 0

    def turn(self) -> int:
        """Index of the set to use now. All arms share it: what one arm has just used would be warm for another."""
        now, self._next = self._next, (self._next + 1) % len(self.inputs)
        return now

    def damage(self) -> str | None:
        """What was written around an input, in words."""
        return _damaged(self._slabs)

    def changed(self) -> str | None:
        """Which input is not what it must be, in words."""
        for tensors in self.inputs:
            for name, now, then in zip(self.op.inputs, tensors, self._expected, strict=True):
                if not same_bits(now, then):
                    return f"{name} of a timed set changed while it was timed"
        return None


class Outputs:
    """The outputs of each input set, poisoned."""

    def __init__(self, sets: InputSets) -> None:
        self._slabs: list[Slab] = []
        like = sets.op.tensors().outputs(sets.problem, sets.inputs[0])
        poison = [torch.full_like(output, float("nan")) for output in like]
        self.tensors = [tuple(_guarded(each, self._slabs) for each in poison) for _ in sets.inputs]

    def damage(self) -> str | None:
        """What was written around an output, in words."""
        return _damaged(self._slabs)

    def unlike(self, last: int) -> str | None:
        """Whether a timed output differs from that of the set `last`, in words."""
        for number, right in enumerate(self.tensors[last]):
            timed = (outputs[number] for outputs in self.tensors if not torch.isnan(outputs[number]).all())
            if not all(same_bits(output, right) for output in timed):
                return "two timed forwards on equal inputs gave different bits"
        return None


class Arm:
    """One side of the race: forwards of one implementation over the input sets. Calling it takes a sample."""

    def __init__(self, forward: Callable[[int], object], sets: InputSets, threads: int) -> None:
        self._forward, self._sets, self._threads = forward, sets, threads
        self.last = 0
        self._run()
        started = time.perf_counter()
        self._run()
        self.calls = max(1, math.ceil(SAMPLE_S / (time.perf_counter() - started)))

    def _run(self) -> None:
        self.last = self._sets.turn()
        self._forward(self.last)

    def __call__(self) -> float:
        """Seconds of one forward: a busy pause, untimed forwards to wake the arm's threads, then `calls` timed ones."""
        if self._threads > 1:
            _stay_awake(SETTLE_S)
        woken = time.perf_counter() + WAKE_S
        self._run()
        while time.perf_counter() < woken:
            self._run()
        started = time.perf_counter_ns()
        for _ in range(self.calls):
            self._run()
        return (time.perf_counter_ns() - started) / 1e9 / self.calls


class VariantArm(Arm):
    """The arm of a built variant, with guarded outputs and a guarded workspace of its own."""

    def __init__(
        self, variant: LoadedVariant, sets: InputSets, threads: int, judge: Callable[[Timed], Fault | None]
    ) -> None:
        """`judge` is G7."""
        problem, self._judge = sets.problem, judge
        wanted = variant.workspace_bytes(problem)
        self._workspace = Slab(max(ALIGNMENT, math.ceil(wanted / ALIGNMENT) * ALIGNMENT))
        self._outputs = Outputs(sets)
        workspace = self._workspace.bytes.data_ptr()
        inputs, outputs = (
            [tuple(tensor.data_ptr() for tensor in tensors) for tensors in each]
            for each in (sets.inputs, self._outputs.tensors)
        )

        def forward(index: int) -> None:
            variant.run(problem, inputs[index], outputs[index], workspace, wanted)

        super().__init__(forward, sets, threads)

    def clocks(self, seconds: float) -> None:
        """There is no clock but the host's."""

    def recheck(self) -> Fault | None:
        sets, outputs, last = self._sets, self._outputs, self.last
        damage = sets.damage() or outputs.damage() or self._workspace.damaged()
        strays = sets.changed() or outputs.unlike(last)
        return self._judge(Timed(sets.inputs[last], outputs.tensors[last], damage, strays, self._repeat))

    def _repeat(self) -> None:
        self._forward(self.last)


class CpuTrack:
    """A problem on the CPUs that the conditions allow, ready for races."""

    drift = 0.15

    def __init__(self, sets: InputSets, threads: int, judge: Callable[[Timed], Fault | None]) -> None:
        self.problem = sets.problem
        self._sets, self._threads, self._judge = sets, threads, judge

    def baseline(self, name: str) -> Arm:
        sets = self._sets
        forward = sets.op.tensors().BASELINES[name].forward(self.problem)
        return Arm(lambda index: forward(*sets.inputs[index]), sets, self._threads)

    def variant(self, artifact: Artifact, again: bool = False) -> VariantArm:
        loaded = LoadedVariant.second(artifact) if again else LoadedVariant(artifact)
        return VariantArm(loaded, self._sets, self._threads, self._judge)

    def throttled(self) -> None:
        """Nobody is asked: the thermometer would show it."""
