"""Phrases that several tables share: one language for ratios, their intervals, and lists of trials."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autotuner.values.ratio import Objective, Speedup
from autotuner.views.table import ESTIMATE

MOST_NUMBERS = 12
"""Numbers of trials that a line lists."""
LATER = "`autotuner tune` races them again when the machine is calm"


def interval_words(speedup: Speedup, of: str = "processes") -> str:
    """The ends of a speedup's interval; `of`: what there are too few of where it has none."""
    return f"{speedup.low:.3f} to {speedup.high:.3f}" if speedup.bounded else f"too few {of}"


def quoted_words(speedup: float, confirmed: bool) -> str:
    """A speedup, with a mark where it is the search's own and no finals have confirmed it."""
    return f"{'' if confirmed else ESTIMATE}{speedup:.3f}x"


def numbers_words(trials: Sequence[int]) -> str:
    """The first of the numbers."""
    shown = ", ".join(map(str, trials[:MOST_NUMBERS]))
    return f"{shown}, ..." if len(trials) > MOST_NUMBERS else shown


def over_words(problems: int, objective: Objective) -> str:
    """What figures over several problems are; "" for one problem."""
    if problems == 1:
        return ""
    if isinstance(objective, str):
        over = {
            "mean": f"geometric means over {problems} problems",
            "max": f"those of the worst of {problems} problems",
        }
        return f"Speedups and microseconds are {over[objective]}."
    shares = ", ".join(f"{100 * weight / math.fsum(objective):.2g} %" for weight in objective)
    return f"Speedups and microseconds are geometric means over {problems} problems, which count {shares}."


def ending_words(crowned: int | None, tied: Sequence[int], beaten: bool, baseline: str) -> str:
    """How finals ended. `beaten`: of those that they did not tell from the leader the search told some."""
    if crowned is not None:
        return f"Trial {crowned} is crowned: faster than {baseline} and every other finalist, by more than a tie."
    if tied:
        return "The finals cannot tell those apart that tie for the lead. Nobody is crowned."
    if beaten:
        return "What the finals do not tell from the first has lost to it in races of the search. Nobody is crowned."
    return f"The first is not shown to be faster than {baseline} by more than a tie. Nobody is crowned."
