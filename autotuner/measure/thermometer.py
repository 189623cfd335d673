"""The baseline as the session's thermometer: a race beside which it is not what it was is run again."""

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
        self.fault = Fault(verdict=Verdict.INFRA_ERROR, code="measure.drift", detail=detail)


def undisturbed(run: Callable[[], Blocks], calm_us: Sequence[float], drift: float) -> Blocks:
    """The blocks, taken again while a baseline is further than `drift` from what it took at calibration.

    Ratios do not cancel a disturbance: it rarely slows both sides alike. `calm_us` is one a problem; empty: nothing to
    compare with. Raises Drifted.
    """
    for attempt in range(ATTEMPTS):
        if attempt:  # even a sleep of no time gives the CPU away, and a busy machine is slow to give it back
            time.sleep(PAUSE_S * attempt)
        blocks = run()
        why = _off(blocks, calm_us, drift)
        if why is None:
            return blocks
    raise Drifted(why or "")


def _off(blocks: Blocks, calm_us: Sequence[float], drift: float) -> str | None:
    for problem, calm in enumerate(calm_us):
        took = 1e6 * median(blocks.seconds[0][problem])
        if abs(took / calm - 1) > drift:
            then = f"{calm:.1f} us at calibration: the machine is disturbed"
            return f"the baseline took {took:.1f} us beside the variant, {then}"
    return None
