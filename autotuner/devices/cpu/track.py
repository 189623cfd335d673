"""A problem on the CPU, ready for races."""

from __future__ import annotations

from autotuner.devices.cpu.audit import of_baseline, of_variant
from autotuner.devices.cpu.timing import LONG_S, Arm, Beside, InputSets, VariantArm
from autotuner.forge.loaded_variant import LoadedVariant
from autotuner.gate.recheck import Judges
from autotuner.race.arms import Audited, Price
from autotuner.values.outcome import Artifact


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
