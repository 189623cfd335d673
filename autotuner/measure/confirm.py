"""The finals: from heats in several fresh processes to confirmed ratios, a tie set and, rarely, one winner.

docs/finals-method.md says how the method and its constants were chosen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median

from pydantic import Field

from autotuner.measure.blocks import Objective, combined
from autotuner.measure.statistics import deviation, holm, p_above, student
from autotuner.measure.tie import logs
from autotuner.values.model import Model
from autotuner.values.outcome import Heat, MeanInterval

PROCESSES = 7
"""Heats, each in a process of its own: the fewest with which a variant that is 2 % better is crowned, under ordinary
disturbances."""

FINAL_BLOCKS = 40
"""Blocks of a heat."""

CROWN_ALPHA = 0.01
"""Probability that any of the comparisons with the leader errs. Whichever looks fastest leads, so two equal ones have
two chances."""

LEVEL = 0.95
"""Confidence level of the intervals."""


class Confirmed(Model):
    """One finalist after the finals."""

    digest: str
    log_ratio: MeanInterval = Field(description="ln(t_variant / t_baseline), the process as the unit")
    tied: bool = Field(description="in the tie set: not shown to be slower than the leader beyond the tie band")


class Standing(Model):
    """The result of the finals."""

    finalists: tuple[Confirmed, ...] = Field(description="in the order of the heats' entrants; failed ones left out")
    leader: str | None = Field(description="digest of the fastest finalist; None when all failed")
    crowned: bool = Field(description="the leader is faster than every other finalist and the baseline, beyond the tie")
    processes: int
    tie: float


def confirm(heats: Sequence[Heat], tie: float, objective: Objective = "mean") -> Standing:
    """What the heats show. Each heat is one fresh process, and the process is the unit of every interval and test.

    `tie` is relative: a ratio of two variants within 1 + tie is a tie. An entrant with a fault or without a finite time
    in any heat is out; one that is entered twice is two finalists. With fewer than two heats intervals are infinite and
    nothing is crowned. Raises ValueError when the heats differ in their entrants or baselines.
    """
    if len({(heat.entrants, heat.baselines) for heat in heats}) > 1:
        raise ValueError("the heats of one final have the same entrants, in the same order, and the same baselines")
    entered = range(len(heats[0].entrants)) if heats else range(0)
    places = [place for place in entered if all(_sound(heat, place) for heat in heats)]
    if not places:
        return Standing(finalists=(), leader=None, crowned=False, processes=len(heats), tie=tie)
    # blocks[i][heat]: the objective of finalist i in every block of that process
    blocks = [[combined(logs(heat, place), objective) for heat in heats] for place in places]
    values = [[median(process) for process in finalist] for finalist in blocks]
    leader = min(range(len(places)), key=lambda i: fmean(values[i]))
    slower, beats_baseline = _slower(blocks, leader, tie)
    digests = [heats[0].entrants[place] for place in places]
    finalists = tuple(
        Confirmed(digest=digest, log_ratio=interval, tied=not behind)
        for digest, interval, behind in zip(digests, _intervals(values), slower, strict=True)
    )
    return Standing(
        finalists=finalists,
        leader=digests[leader],
        crowned=beats_baseline and sum(finalist.tied for finalist in finalists) == 1,
        processes=len(heats),
        tie=tie,
    )


def _sound(heat: Heat, place: int) -> bool:
    """Whether the entrant was timed in every block, without a fault."""
    times = [us for problem in (*heat.us[place], *heat.baseline_us) for us in problem]
    timed = bool(heat.us[place]) and all(heat.us[place]) and all(0 < us < math.inf for us in times)
    return timed and place not in heat.faults


def _intervals(values: Sequence[Sequence[float]]) -> list[MeanInterval]:
    """Of `values[finalist][process]`: Student's, with the finalist's own deviation or the common one if that is larger.

    The leader is chosen because its values look good. Of several equal finalists it is often one whose few values lie
    close together by chance, and the common deviation does not know of that chance.
    """
    count = len(values[0])
    if count < 2:
        return [MeanInterval(low=-math.inf, mean=fmean(each), high=math.inf, level=LEVEL) for each in values]
    own = [deviation(each) for each in values]
    common = math.sqrt(fmean(each**2 for each in own))
    widths = [student((1 + LEVEL) / 2, count - 1) * max(each, common) / math.sqrt(count) for each in own]
    means = [fmean(each) for each in values]
    return [
        MeanInterval(low=mean - width, mean=mean, high=mean + width, level=LEVEL)
        for mean, width in zip(means, widths, strict=True)
    ]


def _slower(blocks: Sequence[Sequence[Sequence[float]]], leader: int, tie: float) -> tuple[list[bool], bool]:
    """Which finalists are shown to be slower than the leader, beyond the tie; and whether the baseline is.

    Every one is compared with the leader block by block within a process, which cancels what both have in common. Each
    comparison has the variance of its own pair: nothing is assumed of that of others.
    """
    others = [place for place in range(len(blocks)) if place != leader]
    ahead = [
        [
            median(one - best for one, best in zip(process, fastest, strict=True))
            for process, fastest in zip(blocks[place], blocks[leader], strict=True)
        ]
        for place in others
    ]
    ahead.append([-median(process) for process in blocks[leader]])
    *shown, baseline = holm([p_above(each, math.log1p(tie)) for each in ahead], CROWN_ALPHA)
    slower = [False] * len(blocks)
    for place, behind in zip(others, shown, strict=True):
        slower[place] = behind
    return slower, baseline
