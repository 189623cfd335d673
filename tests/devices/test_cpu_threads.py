"""Where the threads of a launch may run, and what the gate changes there from launch to launch."""

import ctypes
import os
import threading
from collections.abc import Iterator
from typing import cast

import pytest

from autotuner.devices.bench import FILLS
from autotuner.devices.cpu.bench import CpuBench, on_one_cpu
from autotuner.devices.environment import usable_cpus
from autotuner.forge.loaded_variant import LoadedVariant
from autotuner.gate.bench import ZEROS, Neighbours
from autotuner.gate.invariants import REPEATS
from autotuner.ops import op_of
from autotuner.ops.tensors import Tensors
from autotuner.values.problem import Problem
from tests.helpers.judging import PROBLEM

pytestmark = pytest.mark.skipif(usable_cpus() < 2, reason="needs two CPUs")
EVERY = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set[int]()


class Kept:
    """A thread that a library keeps."""

    def __init__(self) -> None:
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._end.wait)
        self._thread.start()
        assert self._thread.native_id is not None
        self.id = self._thread.native_id

    def end(self) -> None:
        self._end.set()
        self._thread.join()


@pytest.fixture
def kept() -> Iterator[list[Kept]]:
    """Two, and what a test adds."""
    made = [Kept(), Kept()]
    yield made
    for each in made:
        each.end()


def test_all_threads_share_one_cpu_and_have_afterwards_what_they_had(kept: list[Kept]) -> None:
    free, chosen = kept
    own, single = {max(EVERY)}, {min(EVERY)}
    os.sched_setaffinity(chosen.id, own)
    with on_one_cpu(EVERY, but=[]):
        assert [os.sched_getaffinity(each) for each in (0, free.id, chosen.id)] == [single] * 3
        kept += [Kept(), Kept()]
        late, choosing = kept[2:]
        assert os.sched_getaffinity(late.id) == single
        os.sched_setaffinity(choosing.id, own)
    found = [os.sched_getaffinity(each) for each in (0, free.id, chosen.id, late.id, choosing.id)]
    assert found == [EVERY, EVERY, own, EVERY, own]


def test_a_thread_that_is_left_out_is_not_moved_and_one_may_end(kept: list[Kept]) -> None:
    with on_one_cpu(EVERY, but=[kept[0].id]):
        assert os.sched_getaffinity(kept[0].id) == EVERY
        kept.pop().end()
    assert os.sched_getaffinity(0) == EVERY


class Looking:
    """A variant that notes what it finds: the word in its workspace, and whether these threads share one CPU."""

    def __init__(self, threads: list[int]) -> None:
        self._threads = threads
        self.found: list[tuple[int, bool]] = []

    def workspace_bytes(self, problem: Problem) -> int:
        return 64

    def run(self, problem: Problem, inputs: Tensors, outputs: Tensors, workspace: int, wanted: int) -> int:
        shared = all(len(os.sched_getaffinity(thread)) == 1 for thread in self._threads)
        self.found.append((ctypes.c_int32.from_address(workspace).value, shared))
        return 0


def test_every_word_comes_on_one_cpu_and_on_all(kept: list[Kept]) -> None:
    variant = Looking([0, *(each.id for each in kept)])
    bench = CpuBench(cast(LoadedVariant, variant), Neighbours(PROBLEM, None))
    tensors = op_of(PROBLEM).tensors()
    inputs = tensors.inputs(PROBLEM, "randn", 0)
    outputs = tensors.outputs(PROBLEM, inputs)
    for turn in range(1, REPEATS):
        bench.disturb(turn)
        bench.launch(PROBLEM, tuple(map(bench.place, inputs)), outputs)
        assert os.sched_getaffinity(0) == EVERY
    assert set(variant.found) == {(word, crowded) for word in FILLS for crowded in (False, True)}
    assert not variant.found[-1][1]  # the checks that follow have all CPUs
    bench.disturb(ZEROS)
    bench.launch(PROBLEM, inputs, outputs)
    assert variant.found[-1] == (0, False)
    bench.disturb(4)
    bench.repeated(PROBLEM, inputs, outputs, outputs, 3)
    assert variant.found[-1] == (FILLS[1], True)
    assert os.sched_getaffinity(0) == EVERY
