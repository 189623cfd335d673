"""How wide a tie is: what races of a binary against itself show."""

import math
from collections.abc import Sequence
from statistics import fmean

from autotuner.race.blocks import without
from autotuner.race.statistics import trimmed
from autotuner.values.conditions import TIE
from autotuner.values.outcome import Heat
from autotuner.values.ratio import Objective, combined

Times = Sequence[Sequence[float]]
"""Microseconds; [problem][block]."""


def ratios_between(heat: Heat, first: int, second: int, objective: Objective = "mean") -> list[float]:
    """ln(t_first / t_second) of two entrants, a block each; over several problems the difference of the objectives."""
    one, other = (combined(logs(heat, place), objective) for place in (first, second))
    return [a - b for a, b in zip(one, other, strict=True)]


def logs(heat: Heat, place: int) -> list[list[float]]:
    """ln(t_entrant / t_baseline); [problem][block]."""
    return _logs(heat.us[place], heat.baseline_us)


def bounds(heat: Heat, place: int) -> tuple[list[list[float]], list[list[float]]]:
    """The same at least and at most: as if all that something else had of the device had been taken from one side or
    the other. Both are `logs` where nothing was held up."""
    if not heat.waited_us:
        return logs(heat, place), logs(heat, place)
    own, baseline = _own(heat.us[place], heat.waited_us[place]), _own(heat.baseline_us, heat.baseline_waited_us)
    return _logs(own, heat.baseline_us), _logs(heat.us[place], baseline)


def _logs(some: Times, others: Times) -> list[list[float]]:
    return [
        [math.log(us / base) for us, base in zip(times, bases, strict=True)]
        for times, bases in zip(some, others, strict=True)
    ]


def _own(times: Times, waited: Times) -> Times:
    """What is left without waiting."""
    return [[without(*pair) for pair in zip(*problem, strict=True)] for problem in zip(times, waited, strict=True)]


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
