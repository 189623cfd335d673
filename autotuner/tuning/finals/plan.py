"""Who is in the finals: those who deserve it by what the search found, and of these as many as there is time for."""

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from autotuner.race.blocks import CALM_S
from autotuner.race.confirm import FINAL_BLOCKS, FIRST, PROCESSES
from autotuner.values.outcome import Measurement, Outcome, Stop
from autotuner.values.ratio import LogRatio
from autotuner.values.verdict import Verdict

PROVING = 0.25
"""The share of the seconds of finals that is kept for the gate on the one that is chosen, 0..1."""
TOP = 8
"""Best trials by the search's estimate that are always worth a place."""
MOST = 32
"""Trials whose interval overlaps that of the best, at most, that are worth a place beside these."""
AUDIT_SAMPLES = 30
"""Samples that an audit takes about as long as."""
STAYING = 3
"""Finalists that usually stay in the running after the first look."""
START_S = 1.0
"""Seconds until a fresh process has its first inputs, about."""
FRESH = 2.0
"""What the gate takes in a fresh process, over what a heat takes, about."""
RACES, FEWEST = 48, 6
"""Trials of the search that are looked through for races of an incumbent, and blocks of such a race that says how far
processes are apart."""
MOST_SCALED = 4.0
"""How many times as long as a race of few blocks, which is mostly loading, a heat is taken to be at most."""

Number = int
"""Of a trial."""


class Searched(NamedTuple):
    """What finals have to know of each trial of a search: its whole outcome takes a hundred times as much memory."""

    variant: str
    """Its digest."""
    artifact: str | None
    """The digest of it."""
    verdict: Verdict
    log_ratio: LogRatio
    """The objective."""
    incumbent: str | None
    """The digest of the artifact that it raced against."""
    promoted: bool
    """It beat that one."""
    heat_s: float
    """Seconds of a heat of it, about."""


def searched(outcomes: Iterable[tuple[Number, Outcome]]) -> dict[Number, Searched]:
    """The trials that were measured under their own number and stand."""
    found = {}
    for number, outcome in outcomes:
        measured = outcome.measurement
        if measured is None or outcome.verdict not in (Verdict.MEASURED, Verdict.RACED_OUT):
            continue
        found[number] = Searched(
            variant=outcome.variant.digest,
            artifact=outcome.artifact.digest if outcome.artifact is not None else None,
            verdict=outcome.verdict,
            log_ratio=measured.log_ratio,
            incumbent=measured.incumbent,
            promoted=measured.stopped == Stop.PROMOTED,
            heat_s=heat_s(outcome),
        )
    return found


def contenders(right: Mapping[Number, Searched], default: str) -> tuple[Number, ...]:
    """The trials that deserve the finals, by the search's estimate: the best eight, all whose interval overlaps that
    of the best, what beat any of these in a race, and the space's default configuration (`default` is its variant's
    digest); the best first.

    What was raced out is no rival of the best, but may be among the eight. Of equal programs there is only one.
    """
    ranked = sorted(right, key=lambda number: (right[number].log_ratio.mid, number))
    if not ranked:
        return ()
    best = next((number for number in ranked if right[number].verdict == Verdict.MEASURED), ranked[0])
    limit = right[best].log_ratio.high
    overlapping = [n for n in ranked if right[n].verdict == Verdict.MEASURED and right[n].log_ratio.low <= limit]
    chosen = set(ranked[:TOP]) | set(overlapping[:MOST])
    chosen |= {faster for number, others in slower_than(right).items() if number in chosen for faster in others}
    chosen |= {number for number, each in right.items() if each.variant == default}
    return tuple(number for number in ranked if number in chosen)


def slower_than(right: Mapping[Number, Searched]) -> dict[Number, frozenset[Number]]:
    """For each trial those that a race of the search has shown to be faster: it raced against them and was raced out,
    or they against it and were promoted. What beat these has beaten it too."""
    numbers = {each.artifact: number for number, each in right.items() if each.artifact is not None}
    direct: dict[Number, set[Number]] = {number: set() for number in right}
    for number, each in right.items():
        other = numbers.get(each.incumbent) if each.incumbent is not None else None
        if other is None or other == number:
            continue
        if each.verdict == Verdict.RACED_OUT:
            direct[number].add(other)
        elif each.promoted:
            direct[other].add(number)
    return {number: frozenset(_reached(direct, number)) for number in right}


def incumbents(races: Iterable[Measurement]) -> dict[tuple[str, tuple[str, ...]], list[tuple[float, ...]]]:
    """ln(t_incumbent / t_baseline), one a problem, by the races in which nothing was held up: of each incumbent, beside
    the same baselines. None of these processes was chosen for what it showed of the incumbent."""
    found: dict[tuple[str, tuple[str, ...]], list[tuple[float, ...]]] = {}
    for race in races:
        if (
            race.incumbent is not None
            and race.of_incumbent
            and not race.held_up
            and len(race.timings[0].variant_us) >= FEWEST
        ):
            baselines = tuple(timing.baseline for timing in race.timings)
            found.setdefault((race.incumbent, baselines), []).append(race.of_incumbent)
    return found


def _reached(direct: Mapping[Number, set[Number]], start: Number) -> set[Number]:
    found, left = set[Number](), [start]
    while left:
        fresh = direct[left.pop()] - found
        found |= fresh
        left += fresh
    return found - {start}


# Time -------------------------------------------------------------------------------------------------------------


def heat_s(outcome: Outcome) -> float:
    """Seconds of a heat with its audit, by what its race took in the search."""
    assert outcome.measurement is not None
    race_s, first = outcome.seconds.get("measure", 0.0), outcome.measurement.timings[0]
    heat = START_S + min(race_s * min(FINAL_BLOCKS / len(first.variant_us), MOST_SCALED), race_s + CALM_S)
    return heat + race_s * AUDIT_SAMPLES / sum(map(len, (first.variant_us, first.baseline_us, first.incumbent_us)))


def as_many_as_fit(
    numbers: Sequence[Number], heats_s: Sequence[float], seconds: float, slower: Mapping[Number, frozenset[Number]]
) -> tuple[Number, ...]:
    """The first of `numbers`, the most deserving ones, for whom there is time. The first is always in, and the second
    unless a race has shown it to be slower. `heats_s`: of a heat of each; `slower`: as `slower_than` has it."""
    count = len(numbers)
    least = 2 if count > 1 and numbers[0] not in slower[numbers[1]] else 1
    while count > least and needed_s(heats_s[:count]) > seconds:
        count -= 1
    return tuple(numbers[:count])


def needed_s(heats_s: Sequence[float]) -> float:
    """Seconds of finals with these finalists, when as many stay in the running as usually do."""
    staying = sorted(heats_s, reverse=True)[:STAYING]
    return FIRST * math.fsum(heats_s) + (PROCESSES - FIRST + FRESH) * math.fsum(staying)


def by_merit(
    numbers: Sequence[Number], right: Mapping[Number, Searched], beside: Mapping[str, Sequence[float]]
) -> tuple[Number, ...]:
    """In the order in which they get a place: the fastest first, by the mean over all races that one was in. `beside`:
    the objective of incumbents, by artifact, in the races of others. What has beaten one of many races may only have
    been lucky in its own."""
    found = {n: fmean([right[n].log_ratio.mid, *beside.get(right[n].artifact or "", ())]) for n in numbers}
    return tuple(sorted(numbers, key=found.__getitem__))
