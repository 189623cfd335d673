"""Who serves which problem of a study: what its finals confirmed on each, and the smallest set of variants by that.

Of one problem it is the variant that the finals chose: who ties, and who was raced out, is weighed there. Of several
problems another variant may be better than the chosen one on some. The finals put each that serves through the longest
soak; a table has nobody else.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from operator import itemgetter
from typing import NamedTuple

from autotuner.race.confirm import Confirmed, apart, biases, process_values, standing_of
from autotuner.store import FinalsRecord, Lineup
from autotuner.values.outcome import Heat
from autotuner.values.ratio import Objective

LOSS = 0.03
"""How much slower than its own best a problem may become for the table to be smaller, relative."""

MOST_EXACT = 50_000
"""Sets of variants that are tried, at most, before the smallest is taken one variant at a time."""

BASELINE = ""
"""The name of the baseline among candidates."""

Times = Mapping[str, float]
"""Of one problem, by variant: ln(t_variant / t_baseline). Only who is shown to be faster than the baseline is in it."""


class Assigned(NamedTuple):
    """What serves a problem."""

    use: str | None
    """None: the baseline."""
    loss: float
    """ln(t / t_best), of the problem's own best."""


def servers(
    ratios: dict[str, Sequence[Confirmed | None]], chosen: str, objective: Objective, loss: float = LOSS
) -> list[Assigned]:
    """What serves each problem: of `ratios`, by artifact what was confirmed on each problem, the smallest set within
    the loss; of sets of one size one with the chosen artifact in it. Of one problem nobody but that one, or the
    baseline."""
    problems = range(max(map(len, ratios.values()), default=0))
    may = {chosen} & ratios.keys() if len(problems) == 1 else ratios.keys()
    faster = [
        {
            digest: ratio.log_ratio.mid
            for digest in may
            if (ratio := ratios[digest][place]) is not None and ratio.log_ratio.high < 0
        }
        for place in problems
    ]
    weights = [1.0] * len(faster) if isinstance(objective, str) else list(objective)
    return smallest_set(faster, weights, loss, favourite=chosen)


def confirmed_on_each(
    lineup: Lineup, heats: Sequence[Heat], digests: Iterable[str]
) -> dict[str, Sequence[Confirmed | None]]:
    """By artifact what the heats say of it on each problem by itself; None where it is out."""
    found: dict[str, list[Confirmed | None]] = {digest: [] for digest in digests}
    for place in range(len(lineup.baselines)):
        over = itemgetter(place)
        searched = apart(lineup.raced, over)
        standing = standing_of(process_values(heats, over), lineup.tie, biases(heats, over), searched=searched)
        by_digest = {each.digest: each for each in standing.finalists}
        for digest, ratios in found.items():
            ratios.append(by_digest.get(digest))
    return dict(found)


def proven_of_finals(finals: FinalsRecord) -> frozenset[str]:
    """The artifacts that have been through the longest soak and stand; none where the time was over before."""
    assert finals.standing is not None  # they came to an end
    standing = {each.digest for each in finals.finalists if each.number not in finals.revoked}
    return frozenset(each.digest for each in finals.standing.proofs if each.digest in standing)


def smallest_set(
    problems: Sequence[Times], weights: Sequence[float], loss: float, favourite: str | None = None
) -> list[Assigned]:
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


def _cover(problems: Sequence[Times], weights: Sequence[float], names: Sequence[str], first: str | None) -> set[str]:
    if not problems:
        return set()
    for size in range(1, len(names) + 1):
        if math.comb(len(names), size) > MOST_EXACT:
            return _greedy(problems, names)
        sets = [frozenset(each) for each in combinations(names, size)]
        covering = [each for each in sets if all(each & fit.keys() for fit in problems)]
        if covering:
            best: frozenset[str] = min(
                covering, key=lambda one: (first not in one, _cost(problems, weights, one), sorted(one))
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


def _served(times: Times, fit: Times, chosen: set[str]) -> Assigned:
    """The fastest of the set that is within the loss; the baseline where it is, or where no variant is needed."""
    best = min([0.0, *times.values()])
    here = {name: log for name, log in fit.items() if name == BASELINE or name in chosen}
    name = min(here, key=lambda each: here[each])
    return Assigned(name or None, here[name] - best)
