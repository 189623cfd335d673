"""How wide a tie is: what races of a binary against itself show."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Literal

from autotuner.measure.blocks import combined
from autotuner.measure.statistics import trimmed
from autotuner.outcome import Heat
from autotuner.terms import TIE


def ratios_between(heat: Heat, first: int, second: int, objective: Literal["mean", "max"] = "mean") -> list[float]:
    """ln(t_first / t_second) of two entrants, a block each; over several problems the difference of the objectives."""
    one, other = (combined(logs(heat, place), objective) for place in (first, second))
    return [a - b for a, b in zip(one, other, strict=True)]


def logs(heat: Heat, place: int) -> list[list[float]]:
    """ln(t_entrant / t_baseline); [problem][block]."""
    return [
        [math.log(us / base) for us, base in zip(times, bases, strict=True)]
        for times, bases in zip(heat.us[place], heat.baseline_us, strict=True)
    ]


def tie_band(heats: Sequence[Heat], objective: Literal["mean", "max"] = "mean") -> float:
    """The tie band, relative: TIE, or two standard deviations of A/A races if that is more.

    Each heat is a race of one binary loaded twice; the mean of its log-ratios should be 0, so their root mean square
    over the heats is the deviation. The means are trimmed: a few disturbed blocks would make a tie of everything.
    """
    if not heats:
        return TIE
    means = [trimmed(ratios_between(heat, 0, 1, objective))[0] for heat in heats]
    return max(TIE, 2 * math.sqrt(fmean(mean**2 for mean in means)))
