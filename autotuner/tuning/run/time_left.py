"""How long a sweep will still take, from what has been judged so far."""

import math
from statistics import fmean


class TimeLeft:
    """An estimate of the time left of a sweep. Times are seconds of any one clock.

    Variants are taken to come as those of the later half did: A/A tests, devices that start and the first build belong
    to the beginning, and against a better incumbent a race is shorter. Those that were promoted do not count where
    there are others: they cost many times as much, and few are to come.
    """

    def __init__(self, total: int, now: float = 0.0, before: int = 0) -> None:
        """`total` variants are to be judged; `before` of them were when the sweep began at `now`."""
        self._left, self._last = total - before, now
        self._seconds: list[tuple[float, bool]] = []
        """Since the one before, and whether it was promoted."""

    def judged(self, now: float, promoted: bool = False) -> None:
        """One more variant was judged."""
        self._seconds.append((now - self._last, promoted))
        self._left, self._last = self._left - 1, now

    def left_s(self, now: float) -> float:
        """Seconds left until all are judged; infinite before the first was."""
        if self._left <= 0:
            return 0.0
        later = self._seconds[len(self._seconds) // 2 :]
        usual = [seconds for seconds, promoted in later if not promoted] or [seconds for seconds, _ in later]
        return max(0.0, self._left * fmean(usual) - (now - self._last)) if usual else math.inf
