"""A baseline that is slower than it was, though nobody disturbs: another speed of its own.

One of cuDNN's kernels takes 20 us or 24 us on one GPU (docs/busy-machine.md). The fastest time that is known may then
be one that hardly any look finds again, and a machine on which nobody else works would be waited for without end.
"""

from __future__ import annotations

from collections.abc import Sequence

STEADY_S, LOOKS, ALIKE = 20.0, 4, 0.03
"""Seconds of a wait, looks in it, and their largest difference, relative, until such a speed is believed."""
MOST_SLOWER = 0.35
"""Never believed beyond this."""


class Steady:
    """Looks of one wait at baselines that are slower than known."""

    def __init__(self, calm_us: Sequence[float]) -> None:
        """`calm_us`: the fastest that is known, microseconds, one a problem."""
        self._calm_us = calm_us
        self._looks: list[Sequence[float]] = []

    def look(self, us: Sequence[float]) -> None:
        """What they take now, while nobody is seen who disturbs."""
        self._looks.append(us)

    def forget(self) -> None:
        """Somebody disturbs: what was seen until now says nothing."""
        self._looks.clear()

    def slow_us(self, waited_s: float) -> tuple[float, ...]:
        """What they take when they are slow, one a problem, after a wait so long; empty where that cannot be said."""
        if waited_s < STEADY_S or len(self._looks) < LOOKS:
            return ()
        of_each = zip(zip(*self._looks, strict=True), self._calm_us, strict=True)
        found = [(min(looks), max(looks), calm) for looks, calm in of_each]
        alike = all(most <= (1 + ALIKE) * least for least, most, _ in found)
        near = all(most <= (1 + MOST_SLOWER) * calm for _, most, calm in found)
        return tuple(max(most, calm) for _, most, calm in found) if alike and near else ()

    def words(self, slow_us: Sequence[float]) -> str:
        """Why that is believed."""
        took = ", ".join(f"{us:.1f} us" for us in slow_us)
        return f"the baseline takes {took} at each of {len(self._looks)} looks, and nobody disturbs: it has two speeds"
