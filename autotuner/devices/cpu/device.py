"""The CPU in the process that uses it: C++ variants in guarded memory, timed beside torch's kernels."""

from __future__ import annotations

import os

import torch

from autotuner.devices.cpu.audit import of_baseline, of_variant
from autotuner.devices.cpu.bench import CpuBench
from autotuner.devices.cpu.ceilings import ceilings
from autotuner.devices.cpu.sanitizer import CpuSanitizer
from autotuner.devices.cpu.timing import LONG_S, MOST_SLABS, Arm, Beside, InputSets, VariantArm
from autotuner.devices.cpu.toolchain import CpuToolchain
from autotuner.forge.family import Family
from autotuner.forge.loaded_variant import LoadedVariant
from autotuner.gate.cases import Case, Matrix, measured
from autotuner.gate.recheck import Judges
from autotuner.gate.tolerance import Truth, truth
from autotuner.race.arms import Audited, Price, Track
from autotuner.values.conditions import Conditions
from autotuner.values.outcome import Artifact, Ceilings, Say
from autotuner.values.problem import Problem


class CpuTrack:
    """A problem on the CPUs that the conditions allow, ready for races."""

    drift = 0.15

    def __init__(self, sets: InputSets, threads: int, judges: Judges) -> None:
        self.problem = sets.problem
        self.gap = 5e-4 if threads > 1 else 5e-5
        self._sets, self._threads, self._judges = sets, threads, judges
        self._raced: tuple[str, VariantArm] | None = None
        """The arm that was made last, by its artifact's digest, where its forwards are long: the audit after the race
        has it too."""

    def baseline(self, name: str) -> Arm:
        sets, baseline = self._sets, self._sets.op.tensors().BASELINES[name]
        forward, beside = baseline.forward(self.problem), Beside(baseline, sets)
        of = beside.of
        return Arm(lambda index: forward(*sets.inputs[index], *of[index]), sets, self._threads, beside.make)

    def variant(self, artifact: Artifact, again: bool = False) -> VariantArm:
        if again:
            return self._arm(LoadedVariant.second(artifact))
        self._raced = None  # frees the memory first
        arm = self._arm(LoadedVariant(artifact))
        if arm.seconds >= LONG_S:
            self._raced = artifact.digest, arm
        return arm

    def _arm(self, loaded: LoadedVariant) -> VariantArm:
        return VariantArm(loaded, self._sets, self._threads, self._judges.timed)

    def audit(self, artifact: Artifact, baseline: str) -> Audited:
        variant = self._raced[1] if self._raced and self._raced[0] == artifact.digest else self.variant(artifact)

        def price() -> Price:
            other = self.baseline(baseline)
            return Price(other, of_baseline(other, variant))

        return Audited(*of_variant(variant, self._judges.fresh), price)

    def throttled(self) -> None:
        """Nobody is asked: the thermometer would show it."""

    def shared(self) -> None:
        """A turn on a CPU is so long that the samples in it show it: the thermometer does."""


class CpuProcess:
    """Runs in a process that may die with the variant."""

    torch_device = "cpu"
    streams = False
    calibration_rounds = 9

    def __init__(self, toolchain: CpuToolchain, cache_bytes: int) -> None:
        """`cache_bytes`: of the last level."""
        self._toolchain, self._cache_bytes = toolchain, cache_bytes

    def prepare(self, conditions: Conditions) -> None:
        """Pins this process to as many CPUs as the conditions allow and gives torch as many threads."""
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: conditions.threads])
        torch.set_num_threads(conditions.threads)

    def truth(self, case: Case, seed: int) -> Truth:
        return truth(case, seed)

    def bench(self, variant: LoadedVariant, matrix: Matrix) -> CpuBench:
        return CpuBench(variant, matrix.neighbours(matrix.op.cases.between))

    def track(self, conditions: Conditions, problem: Problem, judges: Judges) -> Track:
        inputs = self.truth(measured(problem), conditions.seeds[0]).inputs
        sets = InputSets(problem, inputs, conditions.cache, self._cache_bytes, MOST_SLABS // len(conditions.problems))
        return CpuTrack(sets, conditions.threads, judges)

    def ceilings(self, conditions: Conditions) -> Ceilings:
        return ceilings(conditions.compiled_for.dtype, self._toolchain)

    def draw(self, conditions: Conditions, say: Say) -> None:
        """Truths are kept on disk as they come up."""

    def sanitizer(self, family: Family) -> CpuSanitizer:
        return CpuSanitizer(family, self._toolchain)

    def settle(self) -> bool:
        """Nothing goes on after a launch but threads, which end with the process."""
        return True
