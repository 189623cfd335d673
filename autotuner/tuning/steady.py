"""A baseline that is slower than it was, though nobody disturbs: another speed of its own.

A graph of cuDNN's and other kernels had two on one GPU (docs/busy-machine.md). The fastest time that is known may then
be one that hardly any look finds again, and a machine on which nobody else works would be waited for without end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence

STEADY_S, LOOKS, OF, ALIKE = 20.0, 4, 8, 0.03
"""Seconds of waiting, how many looks of how many last ones, and their largest difference, relative, by which such a
speed is believed."""
MOST_SLOWER = 0.35
"""Never believed beyond this."""


class Steady:
    """Looks of a run at baselines alone, while nobody is seen who disturbs; those while somebody does are left out, and
    no reason to begin anew. Of each baseline those count that found it slower than known: in between it may have been
    as fast as ever."""

    def __init__(self, drift: float) -> None:
        """`drift`: how far a baseline may be off without being slower, relative."""
        self._drift = drift
        self._seconds = 0.0
        self._slow: dict[int, deque[float]] = {}

    def look(self, us: Sequence[float], calm_us: Sequence[float], seconds: float) -> tuple[float, ...]:
        """What they take now, microseconds, one a problem, after `seconds` of waiting; `calm_us` is the fastest that is
        known. What each takes at most on a calm machine, if that can be said of any that is slower; else nothing."""
        self._seconds += seconds
        for place, (now, calm) in enumerate(zip(us, calm_us, strict=True)):
            if now > (1 + self._drift) * calm:
                self._slow.setdefault(place, deque(maxlen=OF)).append(now)
        found = {place: self._speed(looks, calm_us[place]) for place, looks in self._slow.items()}
        if self._seconds < STEADY_S or not any(found.values()):
            return ()
        return tuple(max(calm, found.get(place, calm)) for place, calm in enumerate(calm_us))

    def _speed(self, looks: Collection[float], calm_us: float) -> float:
        """The slowest speed that enough of these looks agree on; 0 where they do not."""
        found = sorted(us for us in looks if us <= (1 + MOST_SLOWER) * calm_us)
        alike = [most for least, most in zip(found, found[LOOKS - 1 :], strict=False) if most <= (1 + ALIKE) * least]
        return max(alike, default=0.0)


def words(slow_us: Sequence[float]) -> str:
    """Why a slower speed is believed."""
    took = ", ".join(f"{us:.1f} us" for us in slow_us)
    return f"the baseline takes {took} again and again, and nobody disturbs: it has two speeds"
