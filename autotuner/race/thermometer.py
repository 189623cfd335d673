"""The baseline as the thermometer: what was timed beside a baseline that is not what it was is timed again.

A race of the search, which may end after any block, is run anew as a whole. A heat, whose number of blocks is fixed,
loses single blocks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import NamedTuple

from autotuner.race.arms import Track
from autotuner.race.blocks import Blocks
from autotuner.values.conditions import Conditions
from autotuner.values.verdict import Fault, Verdict

ATTEMPTS = 3
PAUSE_S = 0.3


def _nobody_asks() -> None:
    """The device may be shared."""


class Thermometer(NamedTuple):
    """What the baselines take on a calm machine, one a problem, and how far they may be off."""

    calm_us: Sequence[float]
    """Empty: nothing to compare with."""
    slow_us: Sequence[float]
    """What they take at most, where calm processes differ; as long as `calm_us`."""
    drift: float
    """Relative."""
    may_be_faster: bool = False
    """Where no variant is there to touch a clock. Else a baseline that is faster than it was says that its clock is
    wrong, or the old time."""
    shared: Callable[[], str | None] = _nobody_asks
    """Whether the device is shared, as the track says."""

    def off(self, baseline: Sequence[Sequence[float]]) -> str | None:
        """Why the seconds that the baselines just took, one a problem, are none of a calm machine; else None."""
        for taken, calm, slow in zip(baseline, self.calm_us, self.slow_us, strict=False):
            took = 1e6 * median(taken)
            if took / slow - 1 > self.drift or (took / calm - 1 < -self.drift and not self.may_be_faster):
                then = f"{calm:.1f} us at calibration: the machine is disturbed"
                return f"the baseline took {took:.1f} us beside the variant, {then}"
        return self.shared()


def thermometer(conditions: Conditions, track: Track, alone: bool = False) -> Thermometer:
    """As the conditions say. `alone`: no variant is raced; nothing has to be known then to say that the device is
    shared. A race without anything to compare with takes what it gets."""
    calm = conditions.baseline_us
    shared = track.shared if calm or alone else _nobody_asks
    return Thermometer(calm, conditions.slow_baseline_us or calm, track.drift, may_be_faster=alone, shared=shared)


class Drifted(Exception):
    """The baseline is not what it was at calibration."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.fault = Fault(verdict=Verdict.DISTURBED, code="measure.drift", detail=detail)


def undisturbed(run: Callable[[], Blocks], calm: Thermometer) -> Blocks:
    """The blocks, taken again while a baseline is off.

    Ratios do not cancel a disturbance: it rarely slows both sides alike. Raises Drifted.
    """
    for attempt in range(ATTEMPTS):
        if attempt:  # even a sleep of no time gives the CPU away, and a busy machine is slow to give it back
            time.sleep(PAUSE_S * attempt)
        why = calm.shared()
        if why is None:
            blocks = run()
            why = calm.off(blocks.seconds[0])
            if why is None:
                return blocks
    raise Drifted(why or "")


def take_calm(blocks: Blocks, count: int, calm: Thermometer) -> None:
    """`count` blocks in which each baseline took what it takes when the machine is calm; others are void and taken
    again. Fewer are enough where more than half of `count` were void: then as many that count as were void.

    Only the baseline's own time decides, before any ratio is looked at. Raises Drifted, and what `Blocks.take` does.
    """
    void = 0
    while len(blocks) < count:
        blocks.take()
        why = calm.off([problem[-1:] for problem in blocks.seconds[0]])
        if why is None:
            continue
        blocks.discard()
        void += 1
        if void > count // 2:
            if len(blocks) >= void:
                return
            raise Drifted(why)
