"""The CPU in the process that uses it: C++ variants in guarded memory, timed beside torch's kernels."""

from __future__ import annotations

import os
from collections.abc import Callable

import torch

from autotuner.devices.cpu.bench import CpuBench
from autotuner.devices.cpu.ceilings import ceilings
from autotuner.devices.cpu.sanitizer import CpuSanitizer
from autotuner.devices.cpu.timing import MOST_SLABS, InputSets
from autotuner.devices.cpu.toolchain import CpuToolchain
from autotuner.devices.cpu.track import CpuTrack
from autotuner.forge.family import Family
from autotuner.forge.loaded_variant import LoadedVariant
from autotuner.gate.cases import Case, Matrix, measured
from autotuner.gate.recheck import Judges
from autotuner.gate.tolerance import Truth, truth
from autotuner.race.arms import Tracks
from autotuner.values.conditions import Conditions
from autotuner.values.outcome import Ceilings, Say
from autotuner.values.problem import Problem


class CpuProcess:
    """Runs in a process that may die with the variant."""

    torch_device = "cpu"
    streams = False
    calibration_rounds = 9

    def __init__(self, toolchain: CpuToolchain, cache_bytes: int) -> None:
        """`cache_bytes`: of the last level."""
        self._toolchain, self._cache_bytes = toolchain, cache_bytes
        self._prepared: tuple[object, list[CpuTrack]] | None = None

    def prepare(self, conditions: Conditions) -> None:
        """Pins this process to as many CPUs as the conditions allow and gives torch as many threads."""
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: conditions.threads])
        torch.set_num_threads(conditions.threads)

    def truth(self, case: Case, seed: int) -> Truth:
        return truth(case, seed)

    def bench(self, variant: LoadedVariant, matrix: Matrix) -> CpuBench:
        return CpuBench(variant, matrix.neighbours(matrix.op.cases.between))

    def tracks(self, conditions: Conditions, judges: Callable[[Problem], Judges]) -> Tracks:
        """The tracks of the last conditions are kept: a race, and the audit after it, have the same."""
        wanted = (conditions.problems, conditions.cache, conditions.seeds, conditions.threads)
        if self._prepared is None or self._prepared[0] != wanted:
            self._prepared = None  # frees the memory first
            self._prepared = wanted, [self._track(conditions, problem, judges) for problem in conditions.problems]
        return self._prepared[1]

    def _track(self, conditions: Conditions, problem: Problem, judges: Callable[[Problem], Judges]) -> CpuTrack:
        inputs = self.truth(measured(problem), conditions.seeds[0]).inputs
        sets = InputSets(problem, inputs, conditions.cache, self._cache_bytes, MOST_SLABS // len(conditions.problems))
        return CpuTrack(sets, conditions.threads, judges(problem))

    def ceilings(self, conditions: Conditions) -> Ceilings:
        return ceilings(conditions.compiled_for.dtype, self._toolchain)

    def draw(self, conditions: Conditions, say: Say) -> None:
        """Truths are kept on disk as they come up."""

    def sanitizer(self, family: Family) -> CpuSanitizer:
        return CpuSanitizer(family, self._toolchain)

    def settle(self) -> bool:
        """Nothing goes on after a launch but threads, which end with the process."""
        return True
