"""Who serves which problem of a study: what its finals confirmed on each, and the smallest set of variants by that.

Of one problem it is the variant that the finals chose: who ties, and who was raced out, is weighed there. Of several
problems another variant may be better than the chosen one on some. The finals put each that serves through the longest
soak; a table has nobody else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from autotuner.race.confirm import Confirmed, standing_of
from autotuner.race.tie import logs
from autotuner.store import FinalsRecord
from autotuner.tuning.smallest_set import Choice, smallest_set
from autotuner.values.outcome import Heat
from autotuner.values.ratio import Objective

LOSS = 0.03
"""How much slower than its own best a problem may become for the table to be smaller, relative."""


def servers(
    ratios: dict[str, Sequence[Confirmed | None]], chosen: str, objective: Objective, loss: float = LOSS
) -> list[Choice]:
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
    heats: Sequence[Heat], digests: Iterable[str], problems: int, tie: float
) -> dict[str, Sequence[Confirmed | None]]:
    """By artifact what the heats say of it on each problem by itself; None where it is out."""
    found: dict[str, list[Confirmed | None]] = {digest: [] for digest in digests}
    for place in range(problems):
        by_digest = {each.digest: each for each in standing_of(_values(heats, place), tie).finalists}
        for digest, ratios in found.items():
            ratios.append(by_digest.get(digest))
    return dict(found)


def proven_of_finals(finals: FinalsRecord, chosen: str) -> frozenset[str]:
    """The artifacts that have been through the longest soak and stand; the chosen one alone where none has, as in
    finals of before there was one."""
    assert finals.standing is not None  # they came to an end
    standing = {each.digest for each in finals.finalists if each.number not in finals.revoked}
    return frozenset(each.digest for each in finals.standing.proofs if each.digest in standing) or frozenset({chosen})


def _values(heats: Sequence[Heat], problem: int) -> dict[str, list[float]]:
    """By artifact: the median over the blocks of ln(t_variant / t_baseline) on that problem, one a process. Who failed
    in a process is out."""
    found: dict[str, list[float]] = {}
    out: set[str] = set()
    for heat in heats:
        for place, digest in enumerate(heat.entrants):
            if place in heat.faults or not all(heat.us[place]):
                out.add(digest)
            else:
                found.setdefault(digest, []).append(median(logs(heat, place)[problem]))
    return {digest: values for digest, values in found.items() if digest not in out}
