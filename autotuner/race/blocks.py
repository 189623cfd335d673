"""Interleaved blocks: in each block every arm runs once on every problem, in random order."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Sequence
from typing import NamedTuple

from autotuner.race.arms import Arm, Tracks
from autotuner.race.statistics import median_interval
from autotuner.values.outcome import Say
from autotuner.values.ratio import LogRatio, Objective, combined
from autotuner.values.verdict import Fault, Verdict

MOST_DISCARDED = 10
EVERY_S = 2.0
"""Seconds between two announcements at least. Whoever hears one wakes up, on the CPUs that are timed perhaps; a race of
short samples is over before."""
HELD_UP = 0.02
"""Share of a sample's time in which its threads may have waited for a CPU without it being held up."""
OFTEN, UNSEEN = 0.25, math.log(1.25)
"""Where samples had to be taken again in more than this share of the blocks, a log-ratio may be so much larger or
smaller than what is seen. What is timed between two turns of another program begins with other caches and with threads
that sleep, which costs one side more than the other; benchmarks.timing.busy shows by how much."""
FEW, CALM_S, LONGEST_S = 8, 2.5, 8.0
"""Blocks that are enough from so many seconds on, and where something holds them up."""
LONGEST_WAIT = 0.99
"""Share of a sample's time that waiting is taken to have been at most, so that something is left."""


class LongStep:
    """Announced when it begins and again as it goes on, between two parts. So its deadline, which runs from the last
    announcement, is one for a part, and not for all that a slow variant needs."""

    def __init__(self, say: Say, name: str) -> None:
        self._say, self._name = say, name
        self._announce()

    def _announce(self) -> None:
        self._say(self._name)
        self._due = time.monotonic() + EVERY_S

    def go_on(self) -> None:
        """Before a part."""
        if time.monotonic() >= self._due:
            self._announce()


class Throttled(Exception):
    """The device's clocks were held down in too many blocks."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.fault = Fault(verdict=Verdict.DISTURBED, code="measure.throttled", detail=why)


class Bounded(NamedTuple):
    """Log-ratios of some blocks, with what they would be if all the waiting had been in one side or the other. Where
    nobody waited all three are the same."""

    low: Sequence[float]
    mid: Sequence[float]
    high: Sequence[float]

    @property
    def interval(self) -> LogRatio:
        """The median's, as wide as noise and waiting make it."""
        found, low, high = (median_interval(each) for each in (self.mid, self.low, self.high))
        return LogRatio(low=min(low.low, found.low), mid=found.mid, high=max(high.high, found.high))

    def less(self, other: Bounded) -> Bounded:
        """Block by block the difference; what both were measured against cancels only where nobody waited."""
        return Bounded(
            [one - two for one, two in zip(self.low, other.high, strict=True)],
            [one - two for one, two in zip(self.mid, other.mid, strict=True)],
            [one - two for one, two in zip(self.high, other.low, strict=True)],
        )


class Blocks:
    """Raw seconds of every block so far: `seconds[arm][problem][block]`; arm 0 is the baseline."""

    def __init__(
        self,
        tracks: Tracks,
        arms: Sequence[Sequence[Arm]],
        seed: int,
        step: LongStep,
        most_throttled: int = MOST_DISCARDED,
    ) -> None:
        """`arms[arm][problem]`. `step`: of which all samples are. `most_throttled`: blocks that may be void because the
        device throttled, and as many because it was shared."""
        self._step, self._most_throttled = step, most_throttled
        self._tracks, self._arms = tracks, arms
        self._draw = random.Random(seed)
        self.seconds: list[list[list[float]]] = [[[] for _ in tracks] for _ in arms]
        self.waited: list[list[list[float]]] = [[[] for _ in tracks] for _ in arms]
        """Of these seconds those, at most, in which something else had the device."""
        self.discarded = 0
        """Blocks that were void."""
        self.clean: list[int] = []
        """The blocks in which no sample was held up."""
        self._again, self._retaken = False, 0
        """Whether a sample of the last block was taken again, and of how many blocks one was."""
        self._throttled = self._shared = 0
        """Those of them in which the device throttled, and in which another program had it in turns."""

    def __len__(self) -> int:
        return len(self.seconds[0][0])

    def go_on_with(self, tracks: Tracks, arms: Sequence[Sequence[Arm]]) -> None:
        """The next blocks are of other loads of the same arms."""
        self._tracks, self._arms = tracks, arms

    def settle(self) -> None:
        """Samples that do not count, until the device keeps its clocks."""
        until = time.monotonic() + self._tracks[0].settles_s
        while time.monotonic() < until:
            self._block()

    def take(self) -> None:
        """One more block. One in which the device throttled, or was shared, is taken again; a device that stays shared
        is timed as it is, and what the turns may have cost stands beside.

        Raises ArmError, and Throttled after too many.
        """
        while True:
            self._again = False
            taken = self._block()
            why, shared = self._tracks[0].throttled(), self._tracks[0].shared()
            if why is not None:
                self._throttled += 1
                if self._throttled > self._most_throttled:
                    raise Throttled(f"{self._throttled} blocks were void: {why}")
            elif shared is None or self._shared >= self._most_throttled:
                break
            else:
                self._shared += 1
            self.discarded += 1
        self._retaken += self._again
        for arm, problem, seconds, waited in taken:
            self.seconds[arm][problem].append(seconds)
            least = min(self.seconds[arm][problem]) if shared is not None else seconds
            self.waited[arm][problem].append(max(waited, seconds - least))
        if self._is_clean(len(self) - 1):
            self.clean.append(len(self) - 1)

    def _block(self) -> list[tuple[int, int, float, float]]:
        order = list(range(len(self._arms)))
        taken: list[tuple[int, int, float, float]] = []
        for problem in range(len(self._tracks)):
            self._draw.shuffle(order)
            taken += [(arm, problem, *self._sample(arm, problem)) for arm in order]
        return taken

    def _sample(self, arm: int, problem: int) -> tuple[float, float]:
        self._step.go_on()
        taken = self._arms[arm][problem]
        seconds = taken()
        self._again |= taken.retaken
        return seconds, taken.waited

    # What was held up -------------------------------------------------------------------------------------------

    def _is_clean(self, block: int) -> bool:
        return all(
            waited[block] <= HELD_UP * seconds[block]
            for arm in range(len(self._arms))
            for waited, seconds in zip(self.waited[arm], self.seconds[arm], strict=True)
        )

    @property
    def kept(self) -> list[int]:
        """The blocks that count: those in which nothing was held up where they are half of all, else all of them.
        Whether a sample was held up does not depend on how long it took otherwise."""
        return self.clean if 2 * len(self.clean) >= len(self) else list(range(len(self)))

    @property
    def held_up(self) -> float:
        """The share of the blocks that count in which a sample was held up, 0..1."""
        kept, clean = self.kept, set(self.clean)
        return sum(block not in clean for block in kept) / len(kept) if kept else 0.0

    @property
    def unseen(self) -> float:
        """What other work may have done to a log-ratio beside all that is seen."""
        return UNSEEN if self._retaken > OFTEN * len(self) else 0.0

    def seconds_kept(self, arm: int, problem: int) -> list[float]:
        """Of the blocks that count."""
        return [self.seconds[arm][problem][block] for block in self.kept]

    def waited_kept(self, arm: int, problem: int) -> list[float]:
        """Of these seconds those that something else had."""
        return [self.waited[arm][problem][block] for block in self.kept]

    def log_ratios(self, arm: int, problem: int, over: int = 0) -> Bounded:
        """ln(t_arm / t_over), of the baseline unless it says another, a block each that counts."""
        one, base = (self._ends(each, problem) for each in (arm, over))
        pairs = ((one[0], base[1]), (one[1], base[1]), (one[1], base[0]))
        low, mid, high = ([math.log(a / b) for a, b in zip(*pair, strict=True)] for pair in pairs)
        return Bounded(low, mid, high)

    def estimate(self, arm: int, problem: int) -> LogRatio:
        """ln(t_arm / t_baseline) and its interval. Where most blocks were held up, by the shortest quarter of each
        side: in a block the one that waited longer would decide."""
        found = self.log_ratios(arm, problem).interval
        if not self.held_up:
            return found
        one, base = (math.log(shortest_quarter(self.seconds_kept(each, problem))) for each in (arm, 0))
        return found.model_copy(update={"mid": min(max(one - base, found.low), found.high)})

    def _ends(self, arm: int, problem: int) -> tuple[list[float], list[float]]:
        """The seconds without what was waited, and with it."""
        whole, waited = self.seconds_kept(arm, problem), self.waited_kept(arm, problem)
        return [without(each, lost) for each, lost in zip(whole, waited, strict=True)], whole

    def objectives(self, arm: int, objective: Objective, over: int = 0) -> Bounded:
        """The objective over the problems, a block each that counts."""
        ratios = [self.log_ratios(arm, problem, over) for problem in range(len(self._tracks))]
        return Bounded(*(combined([list(each) for each in ends], objective) for ends in zip(*ratios, strict=True)))

    def gains(self, arm: int, other: int, objective: Objective) -> Bounded:
        """By how much the objective of one arm is larger than another's, a block each that counts: of a mean the
        baseline cancels, however long it waited, and of the largest it does not."""
        if objective != "max":
            return self.objectives(arm, objective, other)
        return self.objectives(arm, objective).less(self.objectives(other, objective))


def without(seconds: float, waited: float) -> float:
    """What is left of a time without what was waited of it; all of it where that is too little to count."""
    return seconds - min(waited, LONGEST_WAIT * seconds) if waited > HELD_UP * seconds else seconds


def take_clean(blocks: Blocks, count: int) -> None:
    """Blocks until `count` of them were not held up, or twice as many were taken. Where they take long a few are
    enough: how many depends on their time and not on what they show. Raises what `Blocks.take` does."""
    began = time.monotonic()
    while len(blocks) < count or (len(blocks.clean) < count and len(blocks) < 2 * count):
        is_calm = len(blocks.clean) == len(blocks)
        if len(blocks) >= FEW and time.monotonic() > began + (CALM_S if is_calm else LONGEST_S):
            return
        blocks.take()


def shortest_quarter(seconds: Sequence[float], waited: Sequence[float] = ()) -> float:
    """The longest of the shortest quarter of samples, without what they waited: what disturbs most of them hides
    nothing there, and a single one that was faster than any other says nothing."""
    own = sorted(without(each, lost) for each, lost in zip(seconds, waited or [0.0] * len(seconds), strict=True))
    return own[(len(own) - 1) // 4]
