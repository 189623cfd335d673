"""When a race ends: precise enough, hopeless, eliminated, promoted."""

import math
from collections.abc import Sequence
from statistics import fmean

from autotuner.race.blocks import Bounded
from autotuner.race.statistics import deviation, median_interval, trimmed_bound
from autotuner.values.outcome import Stop

HALF_WIDTH = 0.005
"""A race is precise when the 95 % interval of every problem's median log-ratio is at most this far to either side."""

CLEARLY_SLOWER, FAR_SLOWER = math.log(1.5), math.log(4)
FIRST_LOOK = 6
"""Elimination is tried from this block on, after each block."""

SPENT = 0.02
"""What elimination may spend in all on losing an equal arm: look i has SPENT / (i (i + 1)), which sums to SPENT."""

PROMOTION_BLOCKS = 40
PROMOTION_ALPHA = 0.025
"""The error of calling an equal arm faster: what both looks have together."""
EARLY_BLOCKS = 12
EARLY_ALPHA = 0.005
"""What the first of them has: the lead of one that is CLEARLY_FASTER needs no 40 blocks."""
CLEARLY_FASTER = math.log(1.25)
STEADY_BLOCKS = 24
STEADY = 0.05
"""The noise has stabilised when its estimates over the last third of the blocks differ by at most this, relative."""


def hopeless(gains: Sequence[float]) -> bool:
    """Both of the first two blocks are 1.5 times slower than the incumbent, or the first one 4 times."""
    return (len(gains) == 1 and gains[0] > FAR_SLOWER) or (len(gains) == 2 and min(gains) > CLEARLY_SLOWER)


def slower(gains: Sequence[float]) -> bool:
    """The trimmed mean of ln(t_variant / t_incumbent) is above 0, by a test that may look after every block.

    Look i of a race has the error a_i = SPENT / (i (i + 1)): by the union bound an equal arm is lost with probability
    SPENT at most, however long the race (alpha spending, after Lan and DeMets, Biometrika 70, 1983).
    """
    look = len(gains) - FIRST_LOOK + 1
    return look >= 1 and trimmed_bound(gains, SPENT / (look * (look + 1))) > 0


def promoted(gains: Sequence[float], tie: float) -> bool:
    """The trimmed mean of ln(t_variant / t_incumbent) is below the tie band. Asked once in a race, at PROMOTION_BLOCKS
    or where its time is up before."""
    return trimmed_bound([-gain for gain in gains], PROMOTION_ALPHA - EARLY_ALPHA) > math.log1p(tie)


def promoted_early(gains: Sequence[float]) -> bool:
    """The same far below it. Asked once as well, at EARLY_BLOCKS; by the union bound both together promote an equal arm
    with probability PROMOTION_ALPHA at most."""
    return trimmed_bound([-gain for gain in gains], EARLY_ALPHA) > CLEARLY_FASTER


def may_be_promoted(gains: Sequence[float], tie: float) -> bool:
    """The data so far do not exclude that the trimmed mean is below the tie band."""
    return trimmed_bound(gains, PROMOTION_ALPHA - EARLY_ALPHA) < -math.log1p(tie)


def precise(ratios: Sequence[Sequence[float]]) -> bool:
    """`ratios[problem][block]`: every problem's median is known to HALF_WIDTH."""
    intervals = [median_interval(each) for each in ratios]
    return all(interval.high - interval.low <= 2 * HALF_WIDTH for interval in intervals)


def steady(ratios: Sequence[Sequence[float]]) -> bool:
    """More blocks would not tell more about the noise: its estimate has not moved over the last third of them.

    The idea is that of nvbench's criterion "stdrel".
    """
    count = len(ratios[0])
    if count < STEADY_BLOCKS:
        return False
    for each in ratios:
        estimates = [deviation(each[:upto]) for upto in range(count - count // 3, count + 1)]
        if max(estimates) - min(estimates) > STEADY * fmean(estimates):
            return False
    return True


def decide(
    ratios: Sequence[Sequence[float]], gains: Bounded | None, tie: float, min_blocks: int, max_blocks: int, count: int
) -> Stop | None:
    """Why the race ends now, after `count` blocks; None to go on.

    `ratios[problem][block]` are ln(t_variant / t_baseline) of the blocks that count, `gains[block]`
    ln(t_variant / t_incumbent) or None without an incumbent: nothing is given up then. Where samples were held up, a
    variant is slower only if it is without its own waiting, and promoted only if it leads with it.
    """
    if gains is not None:
        if hopeless(gains.low):
            return Stop.HOPELESS
        if slower(gains.low):
            return Stop.SLOWER
        if count == EARLY_BLOCKS and promoted_early(gains.high):
            return Stop.PROMOTED
        if count == PROMOTION_BLOCKS and promoted(gains.high, tie):
            return Stop.PROMOTED
    if count >= max_blocks:
        return Stop.LIMIT
    undecided = gains is not None and count < PROMOTION_BLOCKS and may_be_promoted(gains.low, tie)
    if count < min_blocks or undecided:
        return None
    if precise(ratios):
        return Stop.PRECISE
    return Stop.STEADY if steady(ratios) else None


def out_of_time(gains: Bounded | None, tie: float) -> Stop | None:
    """How a race ends that has taken its time, and that `decide` would let go on; None to go on nevertheless.

    One that has not come to PROMOTION_BLOCKS is asked now whether it promotes the variant. How many blocks it has
    depends on how long they took and not on what they show, so it is one test with the same error. A later one has been
    asked. Fewer than FIRST_LOOK blocks cannot tell.
    """
    if gains is None:
        return Stop.LATE
    count = len(gains.mid)
    if count < FIRST_LOOK and may_be_promoted(gains.low, tie):
        return None
    return Stop.PROMOTED if FIRST_LOOK <= count < PROMOTION_BLOCKS and promoted(gains.high, tie) else Stop.LATE
