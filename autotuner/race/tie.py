"""How wide a tie is: what races of a binary against itself show."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from autotuner.race.statistics import trimmed
from autotuner.values.conditions import TIE
from autotuner.values.outcome import Heat
from autotuner.values.ratio import Objective, combined


def ratios_between(heat: Heat, first: int, second: int, objective: Objective = "mean") -> list[float]:
    """ln(t_first / t_second) of two entrants, a block each; over several problems the difference of the objectives."""
    one, other = (combined(logs(heat, place), objective) for place in (first, second))
    return [a - b for a, b in zip(one, other, strict=True)]


def logs(heat: Heat, place: int) -> list[list[float]]:
    """ln(t_entrant / t_baseline); [problem][block]."""
    return [
        [math.log(us / base) for us, base in zip(times, bases, strict=True)]
        for times, bases in zip(heat.us[place], heat.baseline_us, strict=True)
    ]


def aa_ratio(heat: Heat, objective: Objective = "mean") -> float:
    """The mean log-ratio of an A/A race: of one binary loaded twice it should be 0. It is trimmed, as a few disturbed
    blocks would make a tie of everything."""
    return trimmed(ratios_between(heat, 0, 1, objective))[0]


def band(aa_ratios: Sequence[float]) -> float:
    """The tie band, relative: TIE, or two standard deviations of A/A races if that is more. As each of their ratios
    should be 0, the root of their mean square is the deviation."""
    return max(TIE, 2 * math.sqrt(fmean(each**2 for each in aa_ratios))) if aa_ratios else TIE


def tie_band(heats: Sequence[Heat], objective: Objective = "mean") -> float:
    """The tie band by all these A/A races."""
    return band([aa_ratio(heat, objective) for heat in heats])
