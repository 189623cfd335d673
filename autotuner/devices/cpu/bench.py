"""Runs a C++ extension on guarded memory, for the gate."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import threading
from collections.abc import Iterator, Sequence
from functools import lru_cache

import torch
from torch import Tensor

from autotuner.build.loaded_variant import Extension
from autotuner.devices.cpu.guarded_memory import ALIGNMENT, Slab, tensor_in
from autotuner.gate.bench import Tensors, Traces
from autotuner.gate.cases import Neighbours
from autotuner.gate.launching import same_bits
from autotuner.ops.sdpa.attention import inputs, sdpa
from autotuner.ops.sdpa.problem import Problem

WORKSPACE_FILLS = (0x7FFF7FFF, 0x7BFF7BFF, 0)
"""Words the workspace holds before a launch: a NaN, a large number, zero."""

MAX_WORKSPACE = 1 << 30


PREDECESSOR = (1, 3, 70, 91)
"""Shape of what runs between two launches that are compared."""


@lru_cache(maxsize=4)
def _predecessor(problem: Problem) -> Tensors:
    return inputs(problem, "large", seed=0)


class CpuBench:
    """Runs an extension on guarded memory, for the gate."""

    def __init__(self, extension: Extension, between: Neighbours) -> None:
        """`between`: what torch and the variant itself run on between launches."""
        self._extension = extension
        self._foreign, self._larger = between
        self._slabs: list[Slab] = []
        self._fill = WORKSPACE_FILLS[0]
        self._cpus = sorted(os.sched_getaffinity(0))

    def place(self, tensor: Tensor, shift: int = 0) -> Tensor:
        slab = Slab(tensor.numel() * tensor.element_size(), shift)
        self._slabs.append(slab)
        placed = tensor_in(slab, tensor)
        placed.copy_(tensor)
        return placed

    def launch(self, problem: Problem, q: Tensor, k: Tensor, v: Tensor, o: Tensor) -> int:
        for tensor in (q, k, v, o):
            if not tensor.is_contiguous():
                raise ValueError("tensors must be contiguous")
        wanted = self._extension.workspace_bytes(problem)
        if not 0 <= wanted <= MAX_WORKSPACE:
            raise MemoryError(f"the variant asks for {wanted} bytes of workspace; at most {MAX_WORKSPACE} are given")
        size = max(ALIGNMENT, math.ceil(wanted / ALIGNMENT) * ALIGNMENT)
        workspace = Slab(size)
        self._slabs.append(workspace)
        workspace.bytes.view(torch.int32).fill_(self._fill)
        addresses = (q.data_ptr(), k.data_ptr(), v.data_ptr())
        return self._extension.run(problem, addresses, o.data_ptr(), workspace.bytes.data_ptr(), wanted)

    def disturb(self, turn: int) -> None:
        self._fill = WORKSPACE_FILLS[turn % len(WORKSPACE_FILLS)]
        if hasattr(os, "sched_setaffinity"):  # every third turn all threads share one CPU
            os.sched_setaffinity(0, self._cpus[:1] if turn % 3 == 2 else self._cpus)
        if turn % 2 and self._larger is not None:  # on other, larger inputs the library leaves its own scratch full
            tensors = _predecessor(self._larger)
            q, k, v = (self.place(tensor) for tensor in tensors)
            self.launch(self._larger, q, k, v, self.place(tensors[0]))
        else:
            sdpa(self._foreign, "math")(*_predecessor(self._foreign))

    @contextlib.contextmanager
    def traffic(self) -> Iterator[None]:
        """A thread that copies memory all the while, so that launches meet a busy memory system."""
        size = 8 << 20
        source, target = ctypes.create_string_buffer(size), ctypes.create_string_buffer(size)
        stop = threading.Event()

        def copy() -> None:
            while not stop.wait(0.0005):
                ctypes.memmove(target, source, size)

        thread = threading.Thread(target=copy, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def traces(self, before: Sequence[Tensor], placed: Sequence[Tensor]) -> Traces:
        changed = tuple(not same_bits(a, b) for a, b in zip(before, placed, strict=True))
        found = [text for slab in self._slabs if (text := slab.damaged())]
        self._slabs.clear()
        return Traces(changed, found[0] if found else None)
