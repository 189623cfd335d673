"""Timing on the CPU: the sides of a race, each a few forwards a sample over sets of guarded inputs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import torch
from torch import Tensor

from autotuner.backends.guarded import ALIGNMENT, Slab, tensor_in
from autotuner.extension import Extension
from autotuner.gate.launching import same_bits
from autotuner.gate.recheck import Timed
from autotuner.gate.tolerance import Truth
from autotuner.problem import Problem

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


class InputSets:
    """Copies of one problem's tensors at different addresses. `cold`: together more than the last-level cache holds,
    so that a set has left the cache when its turn comes again; `warm`: one set."""

    def __init__(self, problem: Problem, expected: Truth, cache: str, cache_bytes: int) -> None:
        count = math.ceil(5 * cache_bytes / problem.bytes) + 1 if cache == "cold" else 1
        self._slabs: list[Slab] = []
        self._expected = expected
        self.inputs = [tuple(self._guarded(x) for x in expected[:3]) for _ in range(count)]
        self.outputs = [self._guarded(torch.full_like(expected.q, float("nan"))) for _ in range(count)]
        self._next = 0

    def _guarded(self, tensor: Tensor) -> Tensor:
        """A copy that ends at an unmapped page. It is written, so that no page fault is timed."""
        slab = Slab(tensor.numel() * tensor.element_size())
        self._slabs.append(slab)
        copy = tensor_in(slab, tensor)
        copy.copy_(tensor)
        return copy

    def turn(self) -> int:
        """Index of the set to use now."""
        now, self._next = self._next, (self._next + 1) % len(self.inputs)
        return now

    @property
    def damage(self) -> str | None:
        """What was written before or just past a tensor, in words."""
        return next((text for slab in self._slabs if (text := slab.damaged())), None)

    def strays(self, last: int) -> str | None:
        """Which timed buffer is not what it must be: an input that changed, an output unlike that of the set `last`."""
        for tensors in self.inputs:
            for name, now, then in zip("QKV", tensors, self._expected[:3], strict=True):
                if not same_bits(now, then):
                    return f"{name} of a timed set changed while it was timed"
        timed = (output for output in self.outputs if not torch.isnan(output).all())
        alike = all(same_bits(output, self.outputs[last]) for output in timed)
        return None if alike else "two timed forwards on equal inputs gave different bits"


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
    """The arm of a built variant, with a workspace of its own."""

    def __init__(self, extension: Extension, problem: Problem, sets: InputSets, threads: int) -> None:
        wanted = extension.workspace_bytes(problem)
        self._workspace = Slab(max(ALIGNMENT, math.ceil(wanted / ALIGNMENT) * ALIGNMENT))
        workspace = self._workspace.bytes.data_ptr()
        addresses = [(q.data_ptr(), k.data_ptr(), v.data_ptr()) for q, k, v in sets.inputs]
        outputs = [o.data_ptr() for o in sets.outputs]

        def forward(index: int) -> None:
            extension.run(problem, addresses[index], outputs[index], workspace, wanted)

        super().__init__(forward, sets, threads)

    def timed(self) -> Timed:
        """What the race left behind, for G7."""
        sets, last = self._sets, self.last
        damage = sets.damage or self._workspace.damaged()
        return Timed(sets.inputs[last], sets.outputs[last], damage, sets.strays(last), self._repeat)

    def _repeat(self) -> None:
        self._forward(self.last)
