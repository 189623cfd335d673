"""The baseline as the session's thermometer: a measurement beside which it is not what it was is taken again."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

from autotuner.measure.blocks import Blocks
from autotuner.verdict import Fault, Verdict

ATTEMPTS = 3


def undisturbed(take: Callable[[], Blocks], calm_us: float | None, drift: float) -> Blocks | Fault:
    """The blocks, taken again while the baseline is further than `drift` from `calm_us`, what it took at calibration.

    Ratios do not cancel a disturbance: it rarely slows both sides alike. None: nothing to compare with.
    """
    for attempt in range(ATTEMPTS):
        time.sleep(attempt)
        blocks = take()
        took = 1e6 * median(blocks.baseline)
        if calm_us is None or abs(took / calm_us - 1) <= drift:
            return blocks
    detail = f"SDPA took {took:.1f} us beside the variant, {calm_us:.1f} us at calibration: the machine is disturbed"
    return Fault(verdict=Verdict.INFRA_ERROR, code="measure.drift", detail=detail)
