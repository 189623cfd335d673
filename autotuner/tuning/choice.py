"""Which finalist to use: what the finals and the races of the search know of each, put together."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from autotuner.race.confirm import Confirmed, Standing, confirm
from autotuner.store import Ending, Finalist, FinalsRecord
from autotuner.values.outcome import Heat, Outcome


def preference(number: int, outcome: Outcome) -> tuple[float, int, int, int]:
    """Sorts trials that are as fast as each other: the smallest is preferred.

    Accuracy first, as the largest error in tolerances over all cases of the gate, in tenths; then registers and shared
    memory, of which a small need leaves room for other work beside it, or on the CPU the stack; then the number.
    """
    cases = [case for check in (outcome.gate.checks if outcome.gate else ()) for case in check.cases]
    worst = max((case.errors.worst_ratio for case in cases), default=math.inf)
    resources = outcome.artifact.resources if outcome.artifact else {}
    memory = resources.get("shared_bytes", resources.get("stack_bytes", 0))
    return round(worst, 1), resources.get("registers", 0), memory, number


def rivals(finalists: Sequence[Finalist], standing: Standing) -> tuple[Confirmed, ...]:
    """The finalists that may be the fastest by all that is known, the fastest in the finals first.

    They tie for the lead in the finals, and no race of the search has shown another one that ties to be faster. What
    the finals, with their several processes, have shown to be slower counts no more for a race that it won.
    """
    by_digest = {finalist.digest: finalist for finalist in finalists}
    tied = sorted((each for each in standing.finalists if each.tied), key=lambda each: each.log_ratio.mid)
    numbers = {by_digest[each.digest].number for each in tied}
    left = [each for each in tied if not numbers.intersection(by_digest[each.digest].slower_than)]
    return tuple(left or tied)  # races may contradict each other


def alike(found: Sequence[Confirmed], standing: Standing) -> tuple[Confirmed, ...]:
    """Of rivals those that are known to be as fast as the first, so that something else may decide."""
    if not found or found[0].digest != standing.leader:
        return tuple(found[:1])
    return tuple(each for each in found if each.alike)


def choice(finalists: Sequence[Finalist], standing: Standing, outcome_of: Callable[[int], Outcome]) -> int | None:
    """Number of the finalist to use, None when none is left: the fastest; of those that are shown to be as fast the
    preferred one. What the finals cannot tell apart is not taken to be equal."""
    by_digest = {finalist.digest: finalist.number for finalist in finalists}
    numbers = [by_digest[each.digest] for each in alike(rivals(finalists, standing), standing)]
    return min(numbers, key=lambda number: preference(number, outcome_of(number)), default=None)


def standing(record: FinalsRecord) -> Ending | None:
    """The standing of finals, drawn anew from the heats of those that are left: who ties with whom depends on all of
    them. None while the finals are not over."""
    if record.standing is None or not record.revoked:
        return record.standing
    gone = {finalist.digest for finalist in record.finalists if finalist.number in record.revoked}
    drawn = confirm([_heat_without(heat, gone) for heat in record.heats], record.tie, record.objective)
    return Ending(**dict(drawn), proofs=record.standing.proofs, audits=record.standing.audits)


def _heat_without(heat: Heat, gone: set[str]) -> Heat:
    kept = [place for place, digest in enumerate(heat.entrants) if digest not in gone]
    return heat.model_copy(
        update={
            "entrants": tuple(heat.entrants[place] for place in kept),
            "us": tuple(heat.us[place] for place in kept),
            "faults": {new: heat.faults[old] for new, old in enumerate(kept) if old in heat.faults},
        }
    )
