"""The CPU in the process that uses it: C++ variants in guarded memory, timed beside torch's kernels."""

import os
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from autotuner.devices.bench import bandwidth, least, random_bytes, rate
from autotuner.devices.cpu.audit import in_a_row, of_baseline, of_variant
from autotuner.devices.cpu.bench import CpuBench
from autotuner.devices.cpu.sanitizer import CpuSanitizer
from autotuner.devices.cpu.timing import LONG_S, MOST_SLABS, Beside, CpuArm, CpuInputSets, CpuVariantArm
from autotuner.devices.cpu.toolchain import CpuToolchain
from autotuner.forge.build import build_instrument
from autotuner.forge.family import Family
from autotuner.forge.loaded_variant import LoadedVariant
from autotuner.forge.toolchain import Toolchain
from autotuner.gate.cases import Case, Matrix, measured
from autotuner.gate.recheck import JudgesOf
from autotuner.gate.tolerance import Truth, truth
from autotuner.ops.tensors import DTYPES, on_threads
from autotuner.race.arms import Audited, Track
from autotuner.values.conditions import Conditions
from autotuner.values.outcome import Artifact, Ceilings, Say
from autotuner.values.problem import Problem

SIZE = 512
COPY_BYTES = 1 << 26
PEAK_CHAINS, PEAK_STEPS = 12, 1 << 20
"""Independent sums (kernels/instruments/peak.cpp), and multiply-adds of each in a call: a millisecond or a few."""
PEAK_FLOPS = 2 * PEAK_CHAINS * PEAK_STEPS
"""Operations of such a call."""


class CpuTrack:
    """A problem on the CPUs that the conditions allow, ready for races."""

    settles_s = 0.0

    def __init__(self, sets: CpuInputSets, threads: int, judges: JudgesOf) -> None:
        self.problem = sets.problem
        self.gap = 5e-4 if threads > 1 else 5e-5
        self._sets, self._threads, self._judges = sets, threads, judges
        self._raced: tuple[str, CpuVariantArm] | None = None
        """The arm that was made last, by its artifact's digest, where its forwards are long: the audit after the race
        has it too."""

    def another(self) -> None:
        """Its samples are longer than what addresses cost."""

    def baseline(self, name: str) -> CpuArm:
        sets, baseline = self._sets, self._sets.op.baselines[name]
        forward, beside = baseline.forward(self.problem), Beside(baseline, sets)
        of = beside.of
        return CpuArm(lambda index: forward(*sets.inputs[index], *of[index]), sets, self._threads, beside.make)

    def variant(self, artifact: Artifact, again: bool = False) -> CpuVariantArm:
        if again:
            return self._arm(artifact, LoadedVariant.second(artifact))
        self._raced = None  # frees the memory first
        arm = self._arm(artifact, LoadedVariant(artifact))
        if arm.seconds >= LONG_S:
            self._raced = artifact.digest, arm
        return arm

    def _arm(self, artifact: Artifact, loaded: LoadedVariant) -> CpuVariantArm:
        return CpuVariantArm(loaded, self._sets, self._threads, self._judges(artifact).timed)

    def audit(self, artifact: Artifact, baseline: str) -> Audited:
        variant = self._raced[1] if self._raced and self._raced[0] == artifact.digest else self.variant(artifact)
        other = self.baseline(baseline)
        row = partial(in_a_row, variant) if variant.seconds < LONG_S else None
        return Audited(*of_variant(variant, self._judges(artifact).fresh), other, of_baseline(other, variant), row)

    def throttled(self) -> None:
        """Nobody is asked: both sides are slowed alike."""

    def shared(self) -> None:
        """Each sample says how long its threads waited for a CPU."""


class CpuProcess:
    """Runs in a process that may die with the variant."""

    torch_device = "cpu"
    streams = False
    calibration_rounds = 9

    def __init__(self, toolchain: CpuToolchain, cache_bytes: int) -> None:
        """`cache_bytes`: of the last level."""
        self._toolchain, self._cache_bytes = toolchain, cache_bytes

    def prepare(self, conditions: Conditions) -> None:
        """Pins this process to as many CPUs as the conditions allow. torch has one thread, and as many only while a
        baseline is called: its threads wait for each other by spinning, so beside another program steps as small as the
        gate's take far longer on two than on one."""
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: conditions.threads])
        torch.set_num_threads(1)

    def truth(self, case: Case, seed: int) -> Truth:
        return truth(case, seed)

    def bench(self, variant: LoadedVariant, matrix: Matrix) -> CpuBench:
        return CpuBench(variant, matrix.neighbours(matrix.op.cases.between))

    def track(self, conditions: Conditions, problem: Problem, judges: JudgesOf) -> Track:
        given = self.truth(measured(problem), conditions.seeds[0]).inputs
        sets = CpuInputSets(problem, given, conditions.cache, self._cache_bytes, MOST_SLABS // len(conditions.problems))
        return CpuTrack(sets, conditions.threads, judges)

    def ceilings(self, conditions: Conditions) -> Ceilings:
        return ceilings(conditions.compiled_for.dtype, conditions.threads, self._toolchain)

    def draw(self, conditions: Conditions, say: Say) -> None:
        """Truths are kept on disk as they come up."""

    def sanitizer(self, family: Family) -> CpuSanitizer:
        return CpuSanitizer(family, self._toolchain)

    def settle(self) -> bool:
        """Nothing goes on after a launch but threads, which end with the process."""
        return True


def copy_past_the_caches(toolchain: Toolchain) -> Callable[[Tensor, Tensor], None]:
    """A copy of bytes on one CPU. Raises ToolchainError when it cannot be built."""
    stream = LoadedVariant(build_instrument("cpu", "stream", {}, toolchain))

    def copy(source: Tensor, target: Tensor) -> None:
        stream.command((source.data_ptr(), target.data_ptr(), source.numel()), 0)

    return copy


def ceilings(dtype: str, threads: int, toolchain: Toolchain) -> Ceilings:
    """Of as many CPUs: their number times what one of them can do at most. What runs on several threads waits for the
    one that something else disturbs, and would make the ceiling too low.

    The faster of torch's product, which may use units for matrices, and of plain multiply-adds, by which right variants
    can beat it: a library need not use the widest registers. Of a 16-bit type there may be twice as many. And the
    faster of torch's copy and of one past the caches: torch's may read each line before it overwrites it.
    """
    peak = LoadedVariant(build_instrument("cpu", "peak", {}, toolchain))
    copy = copy_past_the_caches(toolchain)
    source, target = (random_bytes(COPY_BYTES, "cpu") for _ in range(2))
    wide = 1 if dtype == "float32" else 2
    with on_threads(1):
        plain = wide * PEAK_FLOPS / least(lambda: _seconds(lambda: peak.command((PEAK_STEPS,), 0)))
        flops = max(plain, rate(DTYPES[dtype], SIZE, "cpu", _seconds))
        streamed = 2 * COPY_BYTES / least(lambda: _seconds(lambda: copy(source, target)))
        copied = max(streamed, bandwidth(COPY_BYTES, "cpu", _seconds))
    return Ceilings(flops=threads * flops, bytes=threads * copied)


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
