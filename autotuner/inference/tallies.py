"""How many calls who has served."""

from __future__ import annotations

from collections import Counter

from autotuner.ops.forward import Tally


class Tallies(dict[str, Tally]):
    """By the variant or the reason."""

    def __missing__(self, key: str) -> Tally:
        return self.setdefault(key, Tally())

    def counted(self) -> Counter[str]:
        """What has any calls."""
        return Counter({key: tally.calls for key, tally in [*self.items()] if tally.calls})

    def reset(self) -> None:
        """Counts from 0 again, in the same tallies: plans have them."""
        for tally in [*self.values()]:
            tally.calls = 0
