"""A problem on the CPU, ready for races."""

from __future__ import annotations

from autotuner.build.loaded_variant import LoadedVariant
from autotuner.devices.cpu.audit import of_baseline, of_variant
from autotuner.devices.cpu.timing import Arm, Beside, InputSets, VariantArm
from autotuner.gate.recheck import Judges
from autotuner.measure.arms import Audited
from autotuner.values.outcome import Artifact


class CpuTrack:
    """A problem on the CPUs that the conditions allow, ready for races."""

    drift = 0.15

    def __init__(self, sets: InputSets, threads: int, judges: Judges) -> None:
        self.problem = sets.problem
        self.gap = 5e-4 if threads > 1 else 5e-5
        self._sets, self._threads, self._judges = sets, threads, judges

    def baseline(self, name: str) -> Arm:
        sets, baseline = self._sets, self._sets.op.tensors().BASELINES[name]
        forward, beside = baseline.forward(self.problem), Beside(baseline, sets)
        of = beside.of
        return Arm(lambda index: forward(*sets.inputs[index], *of[index]), sets, self._threads, beside.make)

    def variant(self, artifact: Artifact, again: bool = False) -> VariantArm:
        loaded = LoadedVariant.second(artifact) if again else LoadedVariant(artifact)
        return VariantArm(loaded, self._sets, self._threads, self._judges.timed)

    def audit(self, artifact: Artifact, baseline: str) -> Audited:
        variant, other = self.variant(artifact), self.baseline(baseline)
        return Audited(variant, of_variant(variant, self._judges.fresh), other, of_baseline(other, variant))

    def throttled(self) -> None:
        """Nobody is asked: the thermometer would show it."""

    def shared(self) -> None:
        """A turn on a CPU is so long that the samples in it show it: the thermometer does."""
