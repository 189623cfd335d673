"""A problem on one GPU, ready for races."""

from __future__ import annotations

import time

from autotuner.devices.cuda.audit import of_baseline, of_variant
from autotuner.devices.cuda.clocks import ClockMonitor
from autotuner.devices.cuda.timing import BaselineArm, InputSets, VariantArm
from autotuner.forge.loaded_variant import LoadedVariant
from autotuner.gate.recheck import Judges
from autotuner.race.arms import Audited, Price
from autotuner.values.outcome import Artifact

SHARED = 1.5
"""How many times as long as in its shortest sample a forward takes in a row, from which on the device is shared.
Two programs that are busy share it in halves; what heat and clocks do is less."""
LOOK_S = 0.05
"""Between two looks at that, while it is not shared: a look takes 5 ms."""


class CudaTrack:
    """Keeps the arms of the baselines, and of the incumbent: candidate after candidate races against them."""

    drift = 0.1
    """Beside a variant that heats the device a baseline takes several per cent longer than beside other baselines: that
    is the race's own doing, and the ratio is taken there."""

    gap = 5e-6
    """A kernel that follows another of its kind starts some microseconds sooner than behind one with other needs."""

    def __init__(self, sets: InputSets, judges: Judges, monitor: ClockMonitor) -> None:
        self.problem = sets.problem
        self._sets, self._judges, self._monitor = sets, judges, monitor
        self._baselines: dict[str, BaselineArm] = {}
        self._raced: BaselineArm | None = None
        """The baseline that was asked for last."""
        self._alone = -LOOK_S
        """When the device was last seen not to be shared."""
        self._again: tuple[str, VariantArm] | None = None

    def baseline(self, name: str) -> BaselineArm:
        if name not in self._baselines:
            self._baselines[name] = BaselineArm(self._sets.op.tensors().BASELINES[name], self._sets)
        self._raced = self._baselines[name]
        return self._raced

    def variant(self, artifact: Artifact, again: bool = False) -> VariantArm:
        if not again:
            return VariantArm(LoadedVariant(artifact), self._sets, self._judges.timed)
        if self._again is None or self._again[0] != artifact.digest:
            self._again = None  # frees the memory first
            self._again = artifact.digest, VariantArm(LoadedVariant.second(artifact), self._sets, self._judges.timed)
        return self._again[1]

    def audit(self, artifact: Artifact, baseline: str) -> Audited:
        variant = self.variant(artifact)

        def price() -> Price:
            other = self.baseline(baseline)
            return Price(other, of_baseline(other, variant, self._sets))

        return Audited(variant, of_variant(variant, self._sets, self._judges.fresh), price)

    def throttled(self) -> str | None:
        return self._monitor.throttled()

    def shared(self) -> str | None:
        """A sample that is shorter than a turn on the device shows nothing of the other program, and a longer one takes
        whole turns more: so a baseline may look calm, and a slower variant does not."""
        if self._raced is None or time.monotonic() - self._alone < LOOK_S:
            return None
        longer = self._raced.stretched()
        if longer > SHARED:
            return f"another program has the GPU in turns: forwards in a row took {longer:.1f} times as long as one"
        self._alone = time.monotonic()
        return None
