"""The smallest set of variants that is as good as each problem's own best, but for a stated loss."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

MOST_EXACT = 50_000
"""Sets of variants that are tried, at most, before the smallest is taken one variant at a time."""

BASELINE = ""
"""The name of the baseline among candidates."""

Times = Mapping[str, float]
"""Of one problem, by variant: ln(t_variant / t_baseline). Only who is shown to be faster than the baseline is in it."""


class Choice(NamedTuple):
    """What serves a problem."""

    use: str | None
    """None: the baseline."""
    loss: float
    """ln(t / t_best), of the problem's own best."""


def smallest_set(
    problems: Sequence[Times], weights: Sequence[float], loss: float, favourite: str | None = None
) -> list[Choice]:
    """For each problem what serves it: of the smallest set of variants within `loss`, relative, of each problem's own
    best; of several such sets one with the favourite in it, and of these the fastest over all problems, each as often
    as its weight says.

    The baseline is a candidate of every problem and costs nothing: it is always there.
    """
    allowed = [_allowed(times, loss) for times in problems]
    wanted = [place for place, fit in enumerate(allowed) if BASELINE not in fit]
    names = sorted({name for place in wanted for name in allowed[place]})
    chosen = _cover([allowed[place] for place in wanted], [weights[place] for place in wanted], names, favourite)
    return [_served(times, fit, chosen) for times, fit in zip(problems, allowed, strict=True)]


def _allowed(times: Times, loss: float) -> dict[str, float]:
    """Who is within the loss of the best, the baseline among them."""
    candidates = {BASELINE: 0.0, **times}
    limit = min(candidates.values()) + math.log1p(loss)
    return {name: log for name, log in candidates.items() if log <= limit}


def _cover(
    problems: Sequence[Times], weights: Sequence[float], names: Sequence[str], favourite: str | None
) -> set[str]:
    if not problems:
        return set()
    for size in range(1, len(names) + 1):
        if math.comb(len(names), size) > MOST_EXACT:
            return _greedy(problems, names)
        sets = [frozenset(each) for each in combinations(names, size)]
        covering = [each for each in sets if all(each & fit.keys() for fit in problems)]
        if covering:
            best: frozenset[str] = min(
                covering, key=lambda one: (favourite not in one, _cost(problems, weights, one), sorted(one))
            )
            return set(best)
    raise AssertionError("each problem's own best covers it")


def _cost(problems: Sequence[Times], weights: Sequence[float], names: frozenset[str]) -> float:
    best = (min(fit[name] for name in names if name in fit) for fit in problems)
    return math.fsum(weight * log for weight, log in zip(weights, best, strict=True))


def _greedy(problems: Sequence[Times], names: Sequence[str]) -> set[str]:
    """Always the variant that serves most of what is left: at most ln(n) + 1 times as many as the smallest set has
    (Chvatal, Mathematics of Operations Research 4, 1979)."""
    left, chosen = list(problems), set[str]()
    while left:
        most = max(names, key=lambda name: sum(name in fit for fit in left))
        chosen.add(most)
        left = [fit for fit in left if most not in fit]
    return chosen


def _served(times: Times, fit: Times, chosen: set[str]) -> Choice:
    """The fastest of the set that is within the loss; the baseline where it is, or where no variant is needed."""
    best = min([0.0, *times.values()])
    here = {name: log for name, log in fit.items() if name == BASELINE or name in chosen}
    name = min(here, key=lambda each: here[each])
    return Choice(name or None, here[name] - best)
