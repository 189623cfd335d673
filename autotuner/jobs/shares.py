"""Which of several searches gets the next trials: the one that promises most.

Each member has a few trials first. From then on the next turn goes to the member whose proposals promise the largest
expected improvement (Jones, Schonlau and Welch, 1998; of ln t) times its weight. A search that has converged promises
little, and stops costing.

So no member starts from what another has measured: when it begins, the others have fewer points than are worth
knowing (tuning/transfer.py). Members that began one after another, each from its nearest sibling, did worse: one that
has hardly been searched misleads, and one that was misled promises little.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from statistics import fmean

FIRST = 8
"""Trials that a member has before its promises count; half an equal share where the budget is small."""
TURN = 4
"""Trials of a turn."""
REMEMBERED = 4
"""Proposals of a member whose promises are averaged: a single one is noisy."""


class Share:
    """What is known of one member."""

    def __init__(self, weight: float = 1.0) -> None:
        self.weight, self.judged = weight, 0
        self.is_exhausted = False
        """Nothing is left to be judged."""
        self._promises: deque[float] = deque(maxlen=REMEMBERED)

    def promised(self, promise: float | None) -> None:
        """Takes in the expected improvement of a proposal, relative; None of one that was enqueued."""
        if promise is not None:
            self._promises.append(promise)

    @property
    def worth(self) -> float:
        """Expected improvement times weight; infinite as long as nothing was promised."""
        return self.weight * fmean(self._promises) if self._promises else float("inf")


def first_trials(budget: int, members: int) -> int:
    """Trials that every member has before promises are compared."""
    return max(1, min(FIRST, budget // (2 * members)))


def next_member(shares: Sequence[Share], budget: int) -> int | None:
    """The member whose turn it is; None where all are exhausted."""
    open_ones = [place for place, share in enumerate(shares) if not share.is_exhausted]
    if not open_ones:
        return None
    first = first_trials(budget, len(shares))
    young = [place for place in open_ones if shares[place].judged < first]
    if young:
        return young[0]
    return max(open_ones, key=lambda place: (shares[place].worth, -shares[place].judged))
