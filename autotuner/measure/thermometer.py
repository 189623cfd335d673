"""The baseline as the thermometer: what was timed beside a baseline that is not what it was is timed again.

A race of the search, which may end after any block, is run anew as a whole. A heat, whose number of blocks is fixed,
loses single blocks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median

from autotuner.measure.blocks import Blocks
from autotuner.values.verdict import Fault, Verdict

ATTEMPTS = 3
PAUSE_S = 0.3


class Drifted(Exception):
    """The baseline is not what it was at calibration."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.fault = Fault(verdict=Verdict.DISTURBED, code="measure.drift", detail=detail)


def undisturbed(run: Callable[[], Blocks], calm_us: Sequence[float], drift: float) -> Blocks:
    """The blocks, taken again while a baseline is further than `drift` from what it took at calibration.

    Ratios do not cancel a disturbance: it rarely slows both sides alike. `calm_us` is one a problem; empty: nothing to
    compare with. Raises Drifted.
    """
    for attempt in range(ATTEMPTS):
        if attempt:  # even a sleep of no time gives the CPU away, and a busy machine is slow to give it back
            time.sleep(PAUSE_S * attempt)
        blocks = run()
        why = _off(blocks.seconds[0], calm_us, drift)
        if why is None:
            return blocks
    raise Drifted(why or "")


def take_calm(blocks: Blocks, count: int, calm_us: Sequence[float], drift: float, may_be_faster: bool = False) -> None:
    """`count` blocks in which each baseline took what it took when the machine was calm; others are void and taken
    again. Fewer are enough where more than half of `count` were void: then as many that count as were void.

    A baseline that is faster than it was says that its clock is wrong, or the old time; it `may_be_faster` where no
    variant is there to touch a clock. Only the baseline's own time decides, before any ratio is looked at. Raises
    Drifted, and what `Blocks.take` does.
    """
    void = 0
    while len(blocks) < count:
        blocks.take()
        why = _off([problem[-1:] for problem in blocks.seconds[0]], calm_us, drift, may_be_faster)
        if why is None:
            continue
        blocks.discard()
        void += 1
        if void > count // 2:
            if len(blocks) >= void:
                return
            raise Drifted(why)


def _off(
    baseline: Sequence[Sequence[float]], calm_us: Sequence[float], drift: float, may_be_faster: bool = False
) -> str | None:
    """Why the seconds of the baselines, one a problem, are none of a calm machine; None when they are."""
    for taken, calm in zip(baseline, calm_us, strict=False):
        took = 1e6 * median(taken)
        off = took / calm - 1
        if off > drift or (off < -drift and not may_be_faster):
            then = f"{calm:.1f} us at calibration: the machine is disturbed"
            return f"the baseline took {took:.1f} us beside the variant, {then}"
    return None
