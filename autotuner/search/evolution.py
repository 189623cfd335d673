"""EvolutionarySampler: offspring of the best points, screened by a surrogate that learns from the judged ones.

Offspring: mutation to neighbours, crossover repaired to valid points, immigrants. Where a space is small enough, every
point that was not asked for is screened.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from optuna.study import Study
from optuna.trial import FrozenTrial

from autotuner.search.point_sampler import PointSampler, Seen
from autotuner.search.settings import DEFAULT, SearchSettings
from autotuner.search.surrogate import Surrogate
from autotuner.spaces.space import Space
from autotuner.values.known_points import KNOWN_POINTS, KnownPoints

Rng = np.random.Generator
Indices = NDArray[np.int64]
Mask = NDArray[np.bool_]


class EvolutionarySampler(PointSampler):
    """Evolution over the enumerated valid points, no point asked for twice; a surrogate chooses among the offspring.

    First the best points by a related study's surrogate; without one the default point, the best point by the space
    file's expected latency, and points that are far from each other. Then the offspring with the greatest expected
    improvement. Each point in flight counts as judged, with the objective that the surrogate believes. Rejects make the
    surrogate believe that their region is bad; no latency is made up for them. The proposals depend on the space, the
    seed, the settings and the order in which the trials ended.
    """

    def __init__(self, space: Space, seed: int, settings: SearchSettings = DEFAULT) -> None:
        super().__init__(space, seed)
        self.settings = settings
        self._small = len(space) <= settings.screened_whole
        self._surrogate = Surrogate.of(space, seed, whole=self._small, settings=settings)
        self._warm: bool | None = None
        """Whether the study knows what another one has measured; None before it was seen."""
        self._near: dict[int, Indices] = {}
        """The neighbours of a point: it is an elite for long."""

    def opened(self, study: Study, asked: Mask) -> bool:
        return self._is_warm(study) or super().opened(study, asked)

    def propose(self, study: Study, trial: FrozenTrial, seen: Seen, asked: Mask) -> int:
        rng = self.generator(trial.number)
        warm = self._is_warm(study)
        starts = self.settings.starts_known if warm else self.settings.starts
        done = seen.completed
        points, objectives = seen.indices[done], seen.objectives[done]
        if len(done) < starts or not self._surrogate.learn(points, objectives):
            self.promise = None
            return self._first(rng, seen, asked)
        candidates = np.flatnonzero(~asked) if self._small else self._offspring(rng, points, objectives, asked)
        chosen, gain = self._screened(candidates, np.delete(seen.indices, done))
        self.promise = None if warm and len(done) < self.settings.promises_from else gain
        return chosen

    def _is_warm(self, study: Study) -> bool:
        """Whether points of another study are known. The surrogate is told of them at the first call."""
        if self._warm is None:
            found = study.user_attrs.get(KNOWN_POINTS)
            self._warm = found is not None
            if found is not None:
                known = KnownPoints.model_validate(found)
                self._surrogate = Surrogate.of(self._space, self._seed, self._small, known, self.settings)
        return self._warm

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

    def _first(self, rng: Rng, seen: Seen, asked: Mask) -> int:
        """With points of another study, those that its surrogate believes to be the best, and should these fail the
        default point; without, after the default point, the one that the space file expects to be the fastest. Then
        points that are far from each other, more of them where an earlier belief is good.
        """
        earlier, default, count = self._surrogate.earlier, self._space.default_index, len(seen.indices)
        settings = self.settings
        if earlier is not None and count < settings.starts_known:
            return int(np.argmin(np.where(asked, np.inf, earlier.belief)))
        if not asked[default]:
            return default
        fresh = np.flatnonzero(~asked)
        if earlier is not None and (self._warm or count >= settings.starts):
            rivals = rng.choice(fresh, size=(settings.start_candidates, settings.tournament))
            return self._farthest(_winners(rivals, earlier.belief[rivals]), seen)
        return self._farthest(rng.choice(fresh, size=settings.start_candidates), seen)

    def _farthest(self, candidates: Indices, seen: Seen) -> int:
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
