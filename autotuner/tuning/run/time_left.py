"""How long a sweep will still take, from what has been judged so far."""

from __future__ import annotations

import math
from statistics import fmean
from typing import NamedTuple

STEADY = 0.15
"""Share of the promotions that come at a steady rate, 0..1, by a sampler that finds something better again and again.
Chosen on real sweeps and on the simulated ones of the tests."""


class _Answer(NamedTuple):
    """One judged variant; times in seconds."""

    at: float
    busy: float
    build: float
    promoted: bool


class TimeLeft:
    """An estimate of the time left of a sweep. Times are seconds of any one clock.

    Variants cost unequal times, and the dear ones come early: each that is promoted to be the new best goes through
    many blocks and the soak, and of variants in random order the k-th is the best so far with probability 1/k. A mere
    average over what was judged is therefore too high, by half in the first quarter of a short sweep. So what is
    promoted is counted apart: from k variants to n there will be about ln(n/k) more, times the ratio of those seen to
    those that random order makes one expect, as a sampler that learns beats its best more often.

    Of the others the later half is what counts: against a better incumbent a race is shorter.

    What is not spent on devices (builds where they take turns with the judging, the driver, A/A tests) is taken to go
    on as it did, where builds run beside in the later half again: A/A tests and devices that start belong to the
    beginning, as does the first build, for which they wait. And no variant is judged before it is built.
    """

    def __init__(self, total: int, now: float = 0.0, before: int = 0, lanes: int = 1, beside: int = 0) -> None:
        """`total` variants are to be judged on `lanes` devices; `before` of them were when the sweep began at `now`.

        `beside`: how many builders run beside the devices; 0 where they take turns.
        """
        self._total, self._since, self._before = total, now, before
        self._lanes, self._beside = lanes, beside
        self._answers: list[_Answer] = []

    def judged(self, now: float, busy_s: float = 0.0, build_s: float = 0.0, promoted: bool = False) -> None:
        """One more variant was judged, which took a device `busy_s` and a builder `build_s`."""
        self._answers.append(_Answer(now, busy_s, build_s, promoted))

    def left_s(self, now: float) -> float:
        """Seconds left until all are judged; infinite before the first was."""
        left = self._total - self._before - len(self._answers)
        if left <= 0:
            return 0.0
        if not self._answers:
            return math.inf
        since_last = now - self._answers[-1].at
        return max(0.0, max(self._devices_s(left), self._builders_s(left)) - since_last)

    def _devices_s(self, left: int) -> float:
        """Seconds that the devices need for `left` more, from the last answer on."""
        half = len(self._answers) // 2
        later = self._answers[half:]
        since, seen = (self._answers[half - 1].at, later) if self._beside and half else (self._since, self._answers)
        idle = max(0.0, seen[-1].at - since - sum(each.busy for each in seen) / self._lanes) / len(seen)
        promoted = [each.busy for each in self._answers if each.promoted]
        usual = fmean([each.busy for each in later if not each.promoted] or promoted)
        extra = max(0.0, fmean(promoted) - usual) if promoted else 0.0
        return left * (idle + usual / self._lanes) + self._promotions(len(promoted)) * extra / self._lanes

    def _promotions(self, seen: int) -> float:
        """Promotions still to be expected, when `seen` have been."""
        count = self._before + len(self._answers)
        usual = sum(1 / k for k in range(self._before + 1, count + 1))
        rare = (seen + 1) / (usual + 1) * math.log(self._total / count)
        steady = seen * (self._total - count) / max(1, len(self._answers))
        return (1 - STEADY) * rare + STEADY * steady

    def _builders_s(self, left: int) -> float:
        """Seconds that the builders beside the devices need for `left` more."""
        return left * fmean(each.build for each in self._answers) / self._beside if self._beside else 0.0
