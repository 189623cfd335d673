"""Which branch of a space the next point is drawn from: best-arm identification, where an arm is worth its best draw.

A search is over when its budget is, and what counts then is the best point of the best branch, no branch's mean: a
max k-armed bandit (V. Cicirello and S. Smith, The Max K-Armed Bandit, 2005; A. Carpentier and M. Valko, Extreme
Bandits, 2014). Branches are dropped in rungs of draws, as in successive rejects (J.-Y. Audibert, S. Bubeck and R.
Munos, Best Arm Identification in Multi-Armed Bandits, 2010) and in its form for searches whose best falls as they go
on (K. Jamieson and A. Talwalkar, Non-stochastic Best Arm Identification and Hyperparameter Optimization, 2016). All
branches get the draws of the first rung, however many points they have. At the end of each rung the better half goes
on, and with it each branch whose best is so near to the best of all that the draws to come may reach it. The budget is
not known here, so the rungs grow without end. A branch that cannot be as fast as the best of all, by what the device
can do at most, gets no draw.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple


class Rung(NamedTuple):
    """So many draws of each branch that is still in, and what is let in by them to the next."""

    draws: int
    behind: float
    """Factor on the best of all, within which a branch's best keeps it in."""
    half: bool = True
    """Whether the better half is kept, whatever its distance."""


RUNGS = (Rung(1, 4.0, half=False), Rung(3, 2.0), Rung(6, 1.5), Rung(12, 1.25), Rung(24, 1.1))
LAST = 1.05
"""The factor of all rungs after these, which have twice as many draws each."""


class BranchRecord(NamedTuple):
    """What the draws of a branch have shown. Objectives are ln(t_variant / t_baseline)."""

    asked: int
    """Points asked for, those included that are being judged."""
    judged: int
    best: float
    """The lowest objective; +inf where nothing was measured."""
    exhausted: bool = False
    """Whether every point was asked for."""
    hoped: float = math.inf
    """An objective that was measured in it elsewhere: by another study, or of a first point at a near problem."""
    bound: float = -math.inf
    """The lowest objective that a right point can have on this device."""
    next_hoped: float = math.inf
    """The objective that is hoped for of its next draw; +inf where that is no first point."""

    @property
    def likely(self) -> float:
        """Its best, or what is hoped for while nothing of it was judged: draws are asked for long before that."""
        return self.best if self.judged else self.hoped


class Dropped(NamedTuple):
    """When a branch was left, and how far behind it was."""

    draws: int
    """0 where it is out by its bound."""
    behind: float
    """Its best, or its bound, over the best of all, in time; infinite where nothing of it was measured."""


def rungs() -> Iterator[Rung]:
    """All rungs, without end."""
    yield from RUNGS
    draws = RUNGS[-1].draws
    while True:
        draws *= 2
        yield Rung(draws, LAST)


def chosen(arms: Sequence[BranchRecord]) -> int:
    """The branch that the next point is drawn from: the one with the fewest draws among those that are in at the first
    rung that is not full, or one with more hope. Not every arm may be exhausted."""
    fresh = [place for place, arm in enumerate(arms) if not arm.exhausted]
    best = min(arm.best for arm in arms)
    known = best if math.isfinite(best) else min(arm.likely for arm in arms)
    inside = [place for place in fresh if place not in hopeless(arms, known)] or fresh
    for rung in rungs():
        short = [place for place in inside if arms[place].asked < rung.draws]
        if short:
            turn = min(short, key=lambda place: (arms[place].asked, arms[place].likely))
            return sooner(arms, inside, turn, known)
        inside = kept(arms, inside, rung) or inside  # the best of all may be exhausted
    raise AssertionError("there is always another rung")


def sooner(arms: Sequence[BranchRecord], inside: Sequence[int], turn: int, best: float) -> int:
    """The branch whose turn it is, or one that has a first point left and so more hope: what takes long to judge may
    have time for few draws. Such a point promises nearly the best of all, and its branch has not disappointed."""
    ahead = [
        place
        for place in inside
        if max(arms[place].next_hoped, arms[place].likely) < arms[turn].likely
        and arms[place].next_hoped <= best + math.log(RUNGS[1].behind)
    ]
    return min(ahead, key=lambda place: arms[place].next_hoped, default=turn)


def kept(arms: Sequence[BranchRecord], inside: Sequence[int], rung: Rung) -> list[int]:
    """The branches that go on after a rung. One of which nothing is known is judged by the second rung."""
    best = min(arm.likely for arm in arms)
    ranked = sorted(inside, key=lambda place: arms[place].likely)
    half = {*ranked[: math.ceil(len(ranked) / 2)]} if rung.half else set()
    unknown = {place for place in inside if not rung.half and not math.isfinite(arms[place].likely)}
    near = {place for place in inside if arms[place].likely <= best + math.log(rung.behind)}
    return [place for place in inside if place in half | unknown | near]


def hopeless(arms: Sequence[BranchRecord], best: float) -> list[int]:
    """The branches of which no point can be as fast as the best of all."""
    return [place for place, arm in enumerate(arms) if arm.bound > best]


def dropped(arms: Sequence[BranchRecord]) -> dict[int, Dropped]:
    """The branches that the search has left, by the draws so far."""
    best = min((arm.best for arm in arms), default=math.inf)
    found = {place: Dropped(0, math.exp(arms[place].bound - best)) for place in hopeless(arms, best)}
    inside = [place for place in range(len(arms)) if place not in found]
    for rung in rungs():
        if any(arms[place].judged < rung.draws and not arms[place].exhausted for place in inside):
            return found
        stay = kept(arms, inside, rung)
        if all(arms[place].exhausted for place in stay):
            return found
        for place in {*inside} - {*stay}:
            found[place] = Dropped(rung.draws, math.exp(arms[place].best - best))
        inside = stay
    raise AssertionError("there is always another rung")
