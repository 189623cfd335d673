"""How the finals' statistics do where the truth is known: the looks, the drops and the ends of many finals.

A finalist is a number a process here, drawn and not raced, so that thousands of finals take a minute. The rule that
judges them is the product's own. benchmarks/timing/simulated_truth.py races whole sweeps; it also runs this.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from itertools import product
from statistics import median
from typing import NamedTuple

from autotuner.race.confirm import FINAL_BLOCKS, FIRST, PROCESSES, Standing, standing_of
from autotuner.race.statistics import Between
from autotuner.values.conditions import TIE

MOST = (2, 3, 4, 6, 7)
"""Numbers of processes that are compared: finals for which there is less time end sooner."""
BLOCK_NOISE = 0.005 * math.sqrt(math.pi / FINAL_BLOCKS)
"""Of the median over a heat's blocks; a ratio has the noise of two samples."""
BETTER = math.log(1.02)


class Spread(NamedTuple):
    """How much a load differs from another one: its standard deviation."""

    name: str
    even: float
    odd: float
    tails: bool = False
    """Whether it has Student's distribution with three degrees of freedom."""

    def of(self, place: int) -> float:
        """For a finalist. The baseline has that of the even ones."""
        return self.odd if place % 2 else self.even

    def drawn(self, place: int, draw: random.Random, times: float = 1.0) -> float:
        """How much faster or slower than the truth a process finds a finalist."""
        deviation = times * math.hypot(self.of(place), self.even, BLOCK_NOISE)
        if not self.tails:
            return draw.gauss(0.0, deviation)
        return draw.gauss(0.0, deviation) / math.sqrt(draw.gammavariate(1.5, 2.0))  # Student's, its variance 1


SPREADS = (
    Spread("0.2 %", 0.002, 0.002),
    Spread("1 %", 0.01, 0.01),
    Spread("0.5 %, heavy tails", 0.005, 0.005, tails=True),
    Spread("0.1 % and 1 %", 0.001, 0.01),
)
SEARCHED: dict[str, float | None] = {"none": None, "alike": 1.0, "a third": 1 / 3, "three times": 3.0}
"""How far apart the search's races were, relative to those of the first finalist. None: there were none."""
RACES = (6, 5, 4)
"""Races of the search with each of its incumbents."""
FINALISTS = (2, 9)
FINALS = 500
"""Of each row."""
Ended = Mapping[int, Standing]
"""A drawn finals, by the processes at which its time was over."""


class Kind(NamedTuple):
    """What finals are drawn of."""

    spread: Spread
    searched: str
    """In SEARCHED."""
    finalists: int


KINDS = [Kind(*each) for each in product(SPREADS, SEARCHED, FINALISTS)]


def rows(kind: Kind, finals: int = FINALS) -> list[dict[str, object]]:
    """A row for each largest number of processes; shares of the finals."""
    spread, searched, finalists = kind
    draw = random.Random(str(kind))
    equal = [math.log(0.8)] * finalists
    truths = {
        "equal": equal,
        "two": [value + (0.05 if place > 1 else 0.0) for place, value in enumerate(equal)],
        "better": [value - (BETTER if place == 0 else 0.0) for place, value in enumerate(equal)],
    }
    times = SEARCHED[searched]
    ended = {name: [held(each, spread, times, draw) for _ in range(finals)] for name, each in truths.items()}
    found: list[dict[str, object]] = []
    for most in MOST:
        standings = {name: [each[most] for each in of] for name, of in ended.items()}
        inside = [_inside(each, equal) for each in standings["equal"]]
        row = {
            "between_processes": spread.name,
            "searched": searched,
            "finalists": finalists,
            "processes": most,
            "covered": _share([held for each, _, _ in inside for held in each]),
            "leader_covered": _share([leader for _, leader, _ in inside]),
            "half_width": round(median(width for _, _, width in inside), 5),
            "resolution": round(median(each.resolution or math.inf for each in standings["equal"]), 5),
            "crowned_all_equal": _share([each.crowned for each in standings["equal"]]),
            "equal_lost": _share([not each.tied for one in standings["equal"] for each in one.finalists]),
            "crowned_two_equal_ahead": _share([each.crowned for each in standings["two"]]),
            "found_2_percent": _share([each.crowned and each.leader == "0" for each in standings["better"]]),
        }
        found.append(row)
    return found


def held(truth: Sequence[float], spread: Spread, times: float | None, draw: random.Random) -> Ended:
    """Finals as the product holds them: FIRST processes of everybody, then one more of each that ties."""
    values: Mapping[str, list[float]] = {str(place): [] for place in range(len(truth))}
    searched = _searched(spread, times, draw)
    running, ended = list(values), dict[int, Standing]()
    for process in range(1, PROCESSES + 1):
        for name in running:
            values[name].append(truth[int(name)] + spread.drawn(int(name), draw))
        if process >= FIRST:
            if process in MOST:
                ended[process] = standing_of(values, TIE, is_last=True, searched=searched)
            look = standing_of(values, TIE, searched=searched)
            tied = {each.digest for each in look.finalists if each.tied}
            running = [name for name in values if name in tied]
    return ended


def _searched(spread: Spread, times: float | None, draw: random.Random) -> Between:
    """How far apart the races of a search were."""
    if times is None:
        return Between()
    return Between.of([[spread.drawn(0, draw, times) for _ in range(races)] for races in RACES])


def _inside(standing: Standing, truth: Sequence[float]) -> tuple[list[bool], bool, float]:
    """Whether each finalist's interval holds the truth, whether the leader's does, and how wide that is to one side."""
    ratios = {each.digest: each.log_ratio for each in standing.finalists}
    found = {name: ratio.low <= truth[int(name)] <= ratio.high for name, ratio in ratios.items()}
    leader = standing.leader or ""
    return list(found.values()), found[leader], (ratios[leader].high - ratios[leader].low) / 2


def _share(told: Sequence[bool]) -> float:
    return round(sum(told) / len(told), 4)


if PROCESSES not in MOST:
    raise AssertionError("the number of processes that the product has is among those that are compared")
