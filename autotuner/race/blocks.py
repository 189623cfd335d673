"""Interleaved blocks: in each block every arm runs once on every problem, in random order."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Sequence

from autotuner.race.arms import Arm, Tracks
from autotuner.values.outcome import Say
from autotuner.values.ratio import Objective, combined
from autotuner.values.verdict import Fault, Verdict

MOST_DISCARDED = 10
EVERY_S = 2.0
"""Seconds between two announcements at least. Whoever hears one wakes up, on the CPUs that are timed perhaps; a race of
short samples is over before."""


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
        device throttled."""
        self._step, self._most_throttled = step, most_throttled
        self._tracks, self._arms = tracks, arms
        self._draw = random.Random(seed)
        self.seconds: list[list[list[float]]] = [[[] for _ in tracks] for _ in arms]
        self.discarded = 0
        """Blocks that were void."""
        self._throttled = 0
        """Those of them in which the device throttled."""

    def __len__(self) -> int:
        return len(self.seconds[0][0])

    def take(self) -> None:
        """One more block; one in which the device throttled is taken again.

        Raises ArmError, and Throttled after too many.
        """
        while True:
            taken = self._block()
            why = self._tracks[0].throttled()
            if why is None:
                break
            self.discarded += 1
            self._throttled += 1
            if self._throttled > self._most_throttled:
                raise Throttled(f"{self._throttled} blocks were void: {why}")
        for arm, problem, seconds in taken:
            self.seconds[arm][problem].append(seconds)

    def discard(self) -> None:
        """Leaves the last block out."""
        self.discarded += 1
        for arm in self.seconds:
            for problem in arm:
                problem.pop()

    def _block(self) -> list[tuple[int, int, float]]:
        order = list(range(len(self._arms)))
        taken: list[tuple[int, int, float]] = []
        for problem in range(len(self._tracks)):
            self._draw.shuffle(order)
            taken += [(arm, problem, self._sample(arm, problem)) for arm in order]
        return taken

    def _sample(self, arm: int, problem: int) -> float:
        self._step.go_on()
        return self._arms[arm][problem]()

    def log_ratios(self, arm: int, problem: int) -> list[float]:
        """ln(t_arm / t_baseline), a block each."""
        pairs = zip(self.seconds[arm][problem], self.seconds[0][problem], strict=True)
        return [math.log(one / base) for one, base in pairs]

    def objectives(self, arm: int, objective: Objective) -> list[float]:
        """The objective over the problems, a block each."""
        return combined([self.log_ratios(arm, problem) for problem in range(len(self._tracks))], objective)
