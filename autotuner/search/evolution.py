"""EvolutionarySampler: offspring of the best points, screened by a surrogate that learns from the judged ones.

Offspring: mutation to neighbours, crossover repaired to valid points, immigrants. Where a space is small enough, every
point that was not asked for is screened.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from optuna.study import Study
from optuna.trial import FrozenTrial

from autotuner.search.branches import BranchRecord, chosen, dropped
from autotuner.search.point_sampler import PointSampler, Seen
from autotuner.search.settings import DEFAULT, SearchSettings
from autotuner.search.surrogate import Surrogate
from autotuner.spaces.space import BranchPoints, Space
from autotuner.values.known_points import HINTS, KNOWN_POINTS, KnownPoints

Rng = np.random.Generator
Indices = NDArray[np.int64]
Mask = NDArray[np.bool_]


class BranchSeen(NamedTuple):
    """What was asked for of a branch, as `Seen` has it of a space; indices are those of the branch."""

    indices: Indices
    objectives: NDArray[np.float64]
    completed: Indices

    def arm(self) -> BranchRecord:
        """The branch as an arm of the bandit."""
        best = float(np.nanmin(self.objectives[self.completed], initial=np.inf))
        return BranchRecord(len(self.indices), len(self.completed), best)


def drawn_by_branch(space: Space, seen: Seen) -> list[BranchSeen]:
    """What was seen, for each branch."""
    found = []
    for _, mine, inside in space.parts(seen.indices):
        place = np.cumsum(mine) - 1  # among the branch's own
        done = seen.completed[mine[seen.completed]]
        found.append(BranchSeen(inside, seen.objectives[mine], place[done]))
    return found


class EvolutionarySampler(PointSampler):
    """Evolution over the enumerated valid points, no point asked for twice, in each branch of the space by itself.

    The first proposal of a study that knows nothing else is the default point; with first points it is of the branch
    whose are the fastest. Then branches.py says which branch the next point is of, and its `BranchSearch` which one.
    The proposals depend on the space, the seed, the settings and the order in which the trials ended.
    """

    def __init__(self, space: Space, seed: int, settings: SearchSettings = DEFAULT) -> None:
        super().__init__(space, seed)
        self._searches = [BranchSearch(branch, seed, settings) for branch in space.branches]
        self._promises: list[float | None] = [None] * len(space.branches)
        """The last promise of each branch."""
        self._bounds = [-np.inf] * len(space.branches)
        self._more: bool | None = None
        """Whether the study knows more than its space says; None before it was seen."""

    def bound(self, bounds: Sequence[float]) -> None:
        self._bounds = list(bounds)

    def propose(self, study: Study, trial: FrozenTrial, seen: Seen, asked: Mask) -> int:
        first = self._space.first
        drawn = drawn_by_branch(self._space, seen)
        masks = [asked[start:end] for start, end in pairwise(first)]
        arms = [
            draws.arm()._replace(
                exhausted=bool(mask.all()), hoped=search.hoped, bound=bound, next_hoped=search.next_hoped(mask)
            )
            for draws, search, mask, bound in zip(drawn, self._searches, masks, self._bounds, strict=True)
        ]
        place, rng = chosen(arms), self.generator(trial.number)
        found, self._promises[place] = self._searches[place].propose(rng, drawn[place], masks[place])
        left = {*dropped(arms)}
        promises = [each for at, each in enumerate(self._promises) if at not in left and not arms[at].exhausted]
        self.promise = None if None in promises else max(filter(None, promises), default=0.0)
        return first[place] + found

    def opened(self, study: Study, asked: Mask) -> bool:
        """Also where points of another study are known, or first points: branches are told at the first call."""
        if self._more is None:
            found, hints = study.user_attrs.get(KNOWN_POINTS), study.user_attrs.get(HINTS, ())
            self._more = found is not None or len(hints) > 0
            points = np.array([point for point, _ in hints], dtype=np.int64)
            hopes = np.array([hope for _, hope in hints])
            for (place, mine, inside), search in zip(self._space.parts(points), self._searches, strict=True):
                search.hints = dict(zip(inside.tolist(), hopes[mine].tolist(), strict=True))
                search.hoped = next(iter(search.hints.values()), np.inf)
                if found is not None:
                    first = self._space.first[place : place + 2]
                    search.learn_of(KnownPoints.model_validate(found).of_range(*first))
        return self._more or super().opened(study, asked)


class BranchSearch:
    """The search in one branch; indices are those of its points.

    First the best points by a related study's surrogate; without one the first points, the default point, the best
    point by the expected latency, and points that are far from each other. Then the offspring with the greatest
    expected improvement. Each point in flight counts as judged, with the objective that the surrogate believes. Rejects
    make the surrogate believe that their region is bad; no latency is made up for them.
    """

    def __init__(self, space: BranchPoints, seed: int, settings: SearchSettings = DEFAULT) -> None:
        self._space, self._seed, self.settings = space, seed, settings
        self._small = len(space) <= settings.screened_whole
        self._surrogate = Surrogate.of(space, seed, whole=self._small, settings=settings)
        self._warm = False
        self.hoped = np.inf
        """An objective that is known from elsewhere: the lowest of another study, or that of the first hint."""
        self.hints: dict[int, float] = {}
        """Points that were the fastest at similar problems, the most similar first, and what to hope for there."""
        self._near: dict[int, Indices] = {}
        """The neighbours of a point: it is an elite for long."""

    def learn_of(self, known: KnownPoints) -> None:
        """Takes in what another study has measured of the branch, if that is something."""
        measured = [objective for objective in known.objectives if objective is not None]
        if len(measured) >= self.settings.known_least:
            self.hoped = min(measured)
            self._surrogate = Surrogate.of(self._space, self._seed, self._small, known, self.settings)
            self._warm, self.hints = True, {}

    def next_hoped(self, asked: Mask) -> float:
        """The objective to hope for of the next draw; +inf where that is no hint."""
        return next((hope for point, hope in self.hints.items() if not asked[point]), np.inf)

    def propose(self, rng: Rng, seen: BranchSeen, asked: Mask) -> tuple[int, float | None]:
        """A point that was not asked for, and the improvement that is expected of it; None while there is no belief.
        Not all points may be `asked`."""
        starts = self.settings.starts_known if self._warm else self.settings.starts
        done = seen.completed
        points, objectives = seen.indices[done], seen.objectives[done]
        if len(done) < starts or not self._surrogate.learn(points, objectives):
            return self._first(rng, seen, asked), None
        candidates = np.flatnonzero(~asked) if self._small else self._offspring(rng, points, objectives, asked)
        found, gain = self._screened(candidates, np.delete(seen.indices, done))
        return found, None if self._warm and len(done) < self.settings.promises_from else gain

    def _screened(self, candidates: Indices, pending: Indices) -> tuple[int, float]:
        """The candidate of the greatest expected improvement, and that improvement in units of the objective."""
        shortlist = self.settings.shortlist
        if len(pending) and len(candidates) > shortlist:
            alone = self._surrogate.gains(candidates, pending[:0])
            candidates = candidates[np.argsort(-alone, kind="stable")[:shortlist]]
        gains = self._surrogate.gains(candidates, pending)
        best = int(np.argmax(gains))
        return int(candidates[best]), float(np.exp(gains[best]))

    # Before there is a belief -----------------------------------------------------------------------------------

    def _first(self, rng: Rng, seen: BranchSeen, asked: Mask) -> int:
        """Without points of another study the first points. Then the best by an earlier belief, which is that of such
        points or what the space file expects, and the default point; then points that are far from each other, more of
        them where an earlier belief is good.
        """
        earlier, default, count = self._surrogate.earlier, self._space.default_index, len(seen.indices)
        settings = self.settings
        for point in self.hints:
            if not asked[point]:
                return point
        if earlier is not None and count < settings.starts_known + len(self.hints):
            return int(np.argmin(np.where(asked, np.inf, earlier.belief)))
        if not asked[default]:
            return default
        fresh = np.flatnonzero(~asked)
        if earlier is not None and (self._warm or count >= settings.starts):
            rivals = rng.choice(fresh, size=(settings.start_candidates, settings.tournament))
            return self._farthest(_winners(rivals, earlier.belief[rivals]), seen)
        return self._farthest(rng.choice(fresh, size=settings.start_candidates), seen)

    def _farthest(self, candidates: Indices, seen: BranchSeen) -> int:
        """The one farthest from everything asked for: in how many parameters, and how far."""
        rows = self._space.rows
        differ = rows[candidates][:, None, :] - rows[seen.indices][None, :, :]
        widest = np.maximum(rows.max(axis=0), 1)
        distances = ((differ != 0).sum(axis=2) + np.abs(differ / widest).sum(axis=2)).min(axis=1)
        return int(candidates[np.argmax(distances)])

    # Offspring --------------------------------------------------------------------------------------------------

    def _offspring(self, rng: Rng, points: Indices, objectives: NDArray[np.float64], asked: Mask) -> Indices:
        """The candidates in a space that is too large to screen whole; sorted, never empty."""
        measured = np.isfinite(objectives)
        points, objectives = points[measured], objectives[measured]
        elites = _best(points, objectives, self.settings.elites)
        children = [self._immigrants(rng, asked)]
        children += [self._neighbours(int(elite)) for elite in np.unique(_ranked(rng, elites, self.settings.mutated))]
        if len(elites) > 1:
            children.append(self._crossed(rng, elites, asked))
        found = np.unique(np.concatenate(children))
        fresh: Indices = found[~asked[found]]
        return fresh

    def _immigrants(self, rng: Rng, asked: Mask) -> Indices:
        """Random points; with an earlier belief, half of them are the best by it of `tournament` random points each."""
        count, earlier = self.settings.immigrants, self._surrogate.earlier
        drawn = rng.integers(len(asked), size=count)
        if earlier is not None:
            rivals = rng.integers(len(asked), size=(count // 2, self.settings.tournament))
            drawn[: count // 2] = _winners(rivals, np.where(asked[rivals], np.inf, earlier.belief[rivals]))
        fresh = drawn[~asked[drawn]]
        return fresh if len(fresh) else rng.choice(np.flatnonzero(~asked), size=1)

    def _neighbours(self, index: int) -> Indices:
        """The points that differ from it in one parameter, by any number of places."""
        if index not in self._near:
            self._near[index] = self._space.neighbours(index, radius=int(self._space.rows.max()))
        return self._near[index]

    def _crossed(self, rng: Rng, elites: Indices, asked: Mask) -> Indices:
        """Each parameter from either of two elites; where none of it is valid, the nearest valid point."""
        rows, count = self._space.rows, self.settings.crossovers
        mothers, fathers = rows[_ranked(rng, elites, count)], rows[_ranked(rng, elites, count)]
        children = np.where(rng.random(mothers.shape) < 0.5, mothers, fathers)
        found = self._space.indices_of(children)
        fresh = (found >= 0) & ~asked[found]
        return found[fresh] if fresh.any() else np.array([self._space.nearest(children[0], exclude=asked)])


def _best(points: Indices, objectives: NDArray[np.float64], count: int) -> Indices:
    """`count` of the points, or all of fewer; the best first, of equal ones the first of the space."""
    if len(points) > count:
        among = objectives <= np.partition(objectives, count - 1)[count - 1]
        points, objectives = points[among], objectives[among]
    return points[np.lexsort((points, objectives))[:count]]


def _winners(rivals: Indices, belief: NDArray[np.float64]) -> Indices:
    """(n,): of each row of rivals (n, k) the point that is believed to be the best. `belief` is theirs."""
    winners: Indices = np.take_along_axis(rivals, belief.argmin(axis=1)[:, None], axis=1)[:, 0]
    return winners


def _ranked(rng: Rng, elites: Indices, size: int) -> Indices:
    """Elites by lot; the weight falls linearly with the rank."""
    weights = np.arange(len(elites), 0, -1, dtype=float)
    drawn: Indices = rng.choice(elites, size=size, p=weights / weights.sum())
    return drawn
