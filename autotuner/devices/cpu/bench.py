"""Runs a C++ variant on guarded memory, for the gate."""

import contextlib
import ctypes
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from autotuner.devices.bench import FILLS, copied_into, far_in, held_by_process, predecessor, workspace_bytes
from autotuner.devices.cpu.guarded_memory import ALIGNMENT, Slabs, seal, untouched
from autotuner.forge.loaded_variant import DeviceErrors, LoadedVariant
from autotuner.gate.bench import Neighbours, Repeats, Traces, run_foreign
from autotuner.ops import op_of
from autotuner.ops.tensors import Tensors, all_same_bits, poison, same_bits, span
from autotuner.values.problem import Problem

MAX_WORKSPACE = 1 << 30

OWN = Path("/proc/self/task")
"""Has an entry for each thread of the process, those that a library keeps too."""


class CpuBench:
    """Runs a variant on guarded memory, for the gate."""

    errors = DeviceErrors()

    def __init__(self, variant: LoadedVariant, between: Neighbours) -> None:
        """`between`: what torch and the variant itself run on between launches."""
        self._variant = variant
        self._foreign, self._larger = between
        self._slabs = Slabs()
        self._fill = FILLS[0]
        self._cpus = sorted(os.sched_getaffinity(0))
        self._crowded = False
        """Whether all threads of a launch share one CPU."""
        self._elsewhere = False
        """Whether a launch is another thread's, its inputs cannot be written, and nothing lies before a tensor."""
        self._unguarded = False
        """Whether tensors lie where torch puts those of a program, near each other and at its places in a page."""
        self._copying: list[int] = []
        """The ids of threads that belong to no launch."""

    def place(self, tensor: Tensor, shift: int = 0) -> Tensor:
        if self._unguarded:
            memory = torch.empty(span(tensor) * tensor.element_size(), dtype=torch.uint8)
            return copied_into(memory, tensor, lambda gaps: None)
        return self._slabs.place(tensor, shift, self._elsewhere)

    def far(self, tensor: Tensor, dim: int) -> Tensor:
        return far_in(untouched, tensor, dim)

    def launch(self, problem: Problem, inputs: Tensors, outputs: Tensors) -> int:
        launched = partial(self._variant.run, problem, inputs, outputs, *self._workspace(problem))
        with self._surroundings():
            if not self._elsewhere:
                return launched()
            for tensor in inputs:
                seal(tensor)
            with ThreadPoolExecutor(1, "", torch.set_num_threads, (torch.get_num_threads(),)) as other:
                return other.submit(launched).result()

    def _surroundings(self) -> contextlib.AbstractContextManager[None]:
        """Where the threads of a launch may run, at the turn."""
        return on_one_cpu(self._cpus, but=self._copying) if self._crowded else contextlib.nullcontext()

    def _workspace(self, problem: Problem) -> tuple[int, int]:
        """Address and size of a guarded workspace that holds the word of the turn; no address where none is wanted."""
        wanted = workspace_bytes(self._variant, problem, MAX_WORKSPACE)
        if not wanted:
            return 0, 0
        workspace = self._slabs.take(wanted, first=self._elsewhere, alignment=ALIGNMENT)
        workspace.bytes[: wanted // 4 * 4].view(torch.int32).fill_(self._fill)
        return workspace.bytes.data_ptr(), wanted

    def repeated(self, problem: Problem, inputs: Tensors, outputs: Tensors, right: Tensors, count: int) -> Repeats:
        workspace = self._workspace(problem)
        with self._surroundings():
            for launch in range(count):
                poison(outputs)
                status = self._variant.run(problem, inputs, outputs, *workspace)
                if status:
                    return Repeats(status, launch + 1, None)
                if not all_same_bits(outputs, right):
                    return Repeats(0, launch + 1, launch)
        return Repeats(0, count, None)

    def disturb(self, turn: int) -> str:
        """Each word fills the workspace in turn. Three turns of nine, one with each word, all threads share one CPU; at
        one of four the launch is another thread's, and at one of eight tensors lie as in a program."""
        self._fill = FILLS[turn % len(FILLS)]
        self._crowded = self._elsewhere = self._unguarded = False
        if turn % 2 and self._larger is not None:  # on other, larger inputs the library leaves its own scratch full
            inputs = predecessor(self._larger, "cpu")
            outputs = op_of(self._larger).tensors().outputs(self._larger, inputs)
            placed = (tuple(self.place(tensor) for tensor in tensors) for tensors in (inputs, outputs))
            self.launch(self._larger, *placed)
        else:
            run_foreign(self._foreign, "cpu", predecessor(self._foreign, "cpu"))
        self._crowded = turn // len(FILLS) % 3 == 1 and len(self._cpus) > 1
        self._elsewhere, self._unguarded = turn % 4 == 2, turn % 8 == 5  # never at the last turn of a check
        return ", from another thread," if self._elsewhere else ""

    def held(self) -> Mapping[str, int]:
        return held_by_process()

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
        assert thread.native_id is not None
        self._copying.append(thread.native_id)
        try:
            yield
        finally:
            stop.set()
            thread.join()
            self._copying.clear()

    def traces(self, before: Sequence[Tensor], placed: Sequence[Tensor]) -> Traces:
        changed = tuple(not same_bits(a, b) for a, b in zip(before, placed, strict=True))
        found = Traces(changed, self._slabs.damaged())
        self._slabs.clear()
        return found


@contextlib.contextmanager
def on_one_cpu(cpus: Iterable[int], but: Iterable[int]) -> Iterator[None]:
    """All threads of the process share the first of `cpus` in the block, but for those with the ids `but`. Afterwards
    they have the CPUs that they had before, and those that were made in the block have all of `cpus`. One that chose
    its CPUs in the block keeps them."""
    every, left_out = set(cpus), set(but)
    single = {min(every)}
    before: dict[int, set[int]] = {}

    def move(thread: int) -> None:
        before[thread] = os.sched_getaffinity(thread)
        os.sched_setaffinity(thread, single)

    def give_back(thread: int) -> None:
        if os.sched_getaffinity(thread) == single:
            os.sched_setaffinity(thread, before.get(thread, every))

    _each_thread(move, left_out)
    try:
        yield
    finally:
        _each_thread(give_back, left_out)


def _each_thread(do: Callable[[int], None], left_out: set[int]) -> None:
    """Until there is no thread for which it was not done: one may be made meanwhile, by another one, as well as end."""
    done = set(left_out)
    while new := {int(entry.name) for entry in OWN.iterdir()} - done:
        for thread in new:
            with contextlib.suppress(ProcessLookupError):
                do(thread)
        done |= new
