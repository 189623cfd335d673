"""How the finals' statistics do where the truth is known: the looks, the drops and the ends of many finals.

A finalist is a number a process here, drawn and not raced, so that thousands of finals take a minute. The rule that
judges them is the product's own. benchmarks/timing/simulated_truth.py races whole sweeps; it also runs this.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from autotuner.race.confirm import FINAL_BLOCKS, FIRST, PROCESSES, Standing, standing_of
from autotuner.values.conditions import TIE

MOST = (3, 5, 7)
"""Numbers of processes that are compared: finals for which there is less time end sooner."""
BLOCK_NOISE = 0.005 * math.sqrt(math.pi / FINAL_BLOCKS)
"""Of the median over a heat's blocks; a ratio has the noise of two samples."""
BETTER = math.log(1.02)


class Spread(NamedTuple):
    """How much a load differs from another one: its standard deviation."""

    name: str
    even: float
    odd: float

    def of(self, place: int) -> float:
        """For a finalist. The baseline has that of the even ones."""
        return self.odd if place % 2 else self.even


SPREADS = (
    Spread("0.2 %", 0.002, 0.002),
    Spread("0.5 %", 0.005, 0.005),
    Spread("1 %", 0.01, 0.01),
    Spread("0.1 % and 1 %", 0.001, 0.01),
)
FINALISTS = (2, 9)
FINALS = 500
"""Of each row."""


class Ended(NamedTuple):
    """One drawn finals."""

    standing: Standing
    heats: int


def rows(finals: int = FINALS, seed: int = 0) -> Iterator[dict[str, object]]:
    """A row for each spread, number of finalists and largest number of processes; shares of the finals."""
    draw = random.Random(seed)
    for spread in SPREADS:
        for finalists in FINALISTS:
            for most in MOST:
                yield _row(spread, finalists, most, finals, draw)


def _row(spread: Spread, finalists: int, most: int, finals: int, draw: random.Random) -> dict[str, object]:
    equal = [math.log(0.8)] * finalists
    two = [value + (0.05 if place > 1 else 0.0) for place, value in enumerate(equal)]
    better = [value - (BETTER if place == 0 else 0.0) for place, value in enumerate(equal)]
    ended = {name: [held(truth, spread, most, draw) for _ in range(finals)] for name, truth in
             (("equal", equal), ("two", two), ("better", better))}  # fmt: skip
    inside = [_inside(each.standing, equal) for each in ended["equal"]]
    everyone = [held for each, _ in inside for held in each]
    return {
        "between_processes": spread.name,
        "finalists": finalists,
        "processes": most,
        "covered": _share(everyone),
        "leader_covered": _share([leader for _, leader in inside]),
        "crowned_all_equal": _share([each.standing.crowned for each in ended["equal"]]),
        "equal_lost": _share([not each.tied for one in ended["equal"] for each in one.standing.finalists]),
        "crowned_two_equal_ahead": _share([each.standing.crowned for each in ended["two"]]),
        "found_2_percent": _share([each.standing.crowned and each.standing.leader == "0" for each in ended["better"]]),
        "heats": round(sum(each.heats for each in ended["two"]) / finals, 1),
    }


def held(truth: Sequence[float], spread: Spread, most: int, draw: random.Random) -> Ended:
    """Finals as the product holds them: FIRST processes of everybody, then one more of each that ties, up to `most`."""
    values: Mapping[str, list[float]] = {str(place): [] for place in range(len(truth))}
    running = list(values)
    for process in range(1, most + 1):
        for name in running:
            place = int(name)
            deviation = math.hypot(spread.of(place), spread.even, BLOCK_NOISE)
            values[name].append(draw.gauss(truth[place], deviation))
        if process >= FIRST:
            standing = standing_of(values, TIE, is_last=process == most)
            tied = {each.digest for each in standing.finalists if each.tied}
            running = [name for name in values if name in tied and len(values[name]) < most]
    return Ended(standing, sum(len(each) for each in values.values()))


def _inside(standing: Standing, truth: Sequence[float]) -> tuple[list[bool], bool]:
    """Whether each finalist's interval holds the truth, and whether the leader's does."""
    found = {
        each.digest: each.log_ratio.low <= truth[int(each.digest)] <= each.log_ratio.high for each in standing.finalists
    }
    return list(found.values()), found[standing.leader or ""]


def _share(told: Sequence[bool]) -> float:
    return round(sum(told) / len(told), 4)


if PROCESSES not in MOST:
    raise AssertionError("the number of processes that the product has is among those that are compared")
