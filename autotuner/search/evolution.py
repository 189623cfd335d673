"""EvolutionarySampler: offspring of the best points, screened by what the judged ones teach.

Offspring: mutation to neighbours, crossover repaired to valid points, immigrants. Where a space is small enough, every
point that was not asked for is screened.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from optuna.study import Study
from optuna.trial import FrozenTrial

from autotuner.search.point_sampler import PointSampler, Seen
from autotuner.search.surrogate import Surrogate
from autotuner.spaces.space import Space
from autotuner.values.known_points import LESSONS, Lessons

Rng = np.random.Generator
Indices = NDArray[np.int64]
Mask = NDArray[np.bool_]

STARTS = 5
"""So many points are judged before the surrogate is believed."""
STARTS_WARM = 2
"""So many where it knows what another study has measured: those that are believed to be the best by it."""
TRUSTED = 20
"""Where another study taught, what is left promises nothing before so many results: those that come first were believed
to be alike, and tell little of how far the lesson is off."""
SPREAD = 32
"""Of so many points by lot the one that is farthest from all others is judged before that; 1 is any point."""
WHOLE = 25_000
"""Spaces of up to so many points are screened whole."""
ELITES = 8
MUTATED = 4
"""So many elites, by lot, have their neighbours among the offspring."""
CROSSED = 64
"""So many crossovers are tried; those that are no valid point are dropped, one is repaired."""
IMMIGRANTS = 128
TOURNAMENT = 8
"""Where anything is believed beforehand, half of the immigrants are the best by it of so many random points each; so
are, with many in flight, the points that are asked for before anything is known."""
SHORTLIST = 512
"""So many of the most promising points are weighed against what is being judged."""


class EvolutionarySampler(PointSampler):
    """Evolution over the enumerated valid points, no point asked for twice; a surrogate chooses among the offspring.

    First what a related study leads to expect the most of; without one the default point, what the space file leads to
    expect the most of, and points that are far from each other. Then the offspring with the greatest expected
    improvement. With several points in flight each counts as judged, as the surrogate believes it. Rejects teach the
    surrogate that the region is bad; no latency is made up for them. The proposals depend on the space, the seed and
    the order in which what was asked for came to its end.
    """

    def __init__(self, space: Space, seed: int) -> None:
        super().__init__(space, seed)
        self._small = len(space) <= WHOLE
        self._surrogate = Surrogate.of(space, seed, whole=self._small)
        self._warm: bool | None = None
        """Whether the study knows what another one has measured; None before it was seen."""
        self._near: dict[int, Indices] = {}
        """The neighbours of a point: it is an elite for long."""

    def opened(self, study: Study, asked: Mask) -> bool:
        return self._is_warm(study) or super().opened(study, asked)

    def propose(self, study: Study, trial: FrozenTrial, seen: Seen, asked: Mask) -> int:
        rng = self.generator(trial.number)
        warm = self._is_warm(study)
        starts = STARTS_WARM if warm else STARTS
        done = seen.completed
        points, objectives = seen.indices[done], seen.objectives[done]
        if len(done) < starts or not self._surrogate.learn(points, objectives):
            self.promise = None
            return self._first(rng, seen, asked)
        candidates = np.flatnonzero(~asked) if self._small else self._offspring(rng, points, objectives, asked)
        chosen, gain = self._screened(candidates, np.delete(seen.indices, done))
        self.promise = None if warm and len(done) < TRUSTED else gain
        return chosen

    def _is_warm(self, study: Study) -> bool:
        """The surrogate is told the lessons of the study, if there are any."""
        if self._warm is None:
            found = study.user_attrs.get(LESSONS)
            self._warm = found is not None
            if found is not None:
                lessons = Lessons.model_validate(found)
                self._surrogate = Surrogate.of(self._space, self._seed, whole=self._small, lessons=lessons)
        return self._warm

    def _screened(self, candidates: Indices, pending: Indices) -> tuple[int, float]:
        """The candidate of the greatest expected improvement, and that improvement in units of the objective."""
        if len(pending) and len(candidates) > SHORTLIST:
            alone = self._surrogate.gains(candidates, pending[:0])
            candidates = candidates[np.argsort(-alone, kind="stable")[:SHORTLIST]]
        gains = self._surrogate.gains(candidates, pending)
        best = int(np.argmax(gains))
        return int(candidates[best]), float(np.exp(gains[best]))

    # Before there is a belief -----------------------------------------------------------------------------------

    def _first(self, rng: Rng, seen: Seen, asked: Mask) -> int:
        """The points that are believed to be the best by another study's surrogate, and should these fail the default
        point; without that study, after the default point, the one that the space file expects to be the fastest. Then
        points that are far from each other: those of a start anywhere, more of them among what is believed to be good.
        """
        taught, default, count = self._surrogate.taught, self._space.default_index, len(seen.indices)
        if taught is not None and count < STARTS_WARM:
            return int(np.argmin(np.where(asked, np.inf, taught.belief)))
        if not asked[default]:
            return default
        fresh = np.flatnonzero(~asked)
        if taught is not None and (self._warm or count >= STARTS):
            rivals = rng.choice(fresh, size=(SPREAD, TOURNAMENT))
            return self._farthest(_winners(rivals, taught.belief[rivals]), seen)
        return self._farthest(rng.choice(fresh, size=SPREAD), seen)

    def _farthest(self, candidates: Indices, seen: Seen) -> int:
        """The one farthest from everything asked for: in how many parameters, and how far."""
        rows = self._space.rows
        differ = rows[candidates][:, None, :] - rows[seen.indices][None, :, :]
        widest = np.maximum(rows.max(axis=0), 1)
        distances = ((differ != 0).sum(axis=2) + np.abs(differ / widest).sum(axis=2)).min(axis=1)
        return int(candidates[np.argmax(distances)])

    # Offspring --------------------------------------------------------------------------------------------------

    def _offspring(self, rng: Rng, points: Indices, objectives: NDArray[np.float64], asked: Mask) -> Indices:
        """What is worth a look in a space that is too large to look at all of it; sorted, never empty."""
        measured = np.isfinite(objectives)
        points, objectives = points[measured], objectives[measured]
        elites = _best(points, objectives)
        children = [self._immigrants(rng, asked), *(self._neighbours(int(elite)) for elite in _parents(rng, elites))]
        if len(elites) > 1:
            children.append(self._crossed(rng, elites, asked))
        found = np.unique(np.concatenate(children))
        fresh: Indices = found[~asked[found]]
        return fresh

    def _immigrants(self, rng: Rng, asked: Mask) -> Indices:
        """Random points; and those that another study or the space file leads to expect the most of, among some."""
        drawn = rng.integers(len(asked), size=IMMIGRANTS)
        taught = self._surrogate.taught
        if taught is not None:
            rivals = rng.integers(len(asked), size=(IMMIGRANTS // 2, TOURNAMENT))
            drawn[: IMMIGRANTS // 2] = _winners(rivals, np.where(asked[rivals], np.inf, taught.belief[rivals]))
        fresh = drawn[~asked[drawn]]
        return fresh if len(fresh) else rng.choice(np.flatnonzero(~asked), size=1)

    def _neighbours(self, index: int) -> Indices:
        """What differs from it in one parameter, by any number of places."""
        if index not in self._near:
            self._near[index] = self._space.neighbours(index, radius=int(self._space.rows.max()))
        return self._near[index]

    def _crossed(self, rng: Rng, elites: Indices, asked: Mask) -> Indices:
        """Each parameter from either of two elites; where none of it is valid, the nearest valid point."""
        rows = self._space.rows
        mothers, fathers = rows[_ranked(rng, elites, CROSSED)], rows[_ranked(rng, elites, CROSSED)]
        children = np.where(rng.random(mothers.shape) < 0.5, mothers, fathers)
        found = self._space.indices_of(children)
        fresh = (found >= 0) & ~asked[found]
        return found[fresh] if fresh.any() else np.array([self._space.nearest(children[0], exclude=asked)])


def _best(points: Indices, objectives: NDArray[np.float64]) -> Indices:
    """ELITES of the points, or all of fewer; the best first, of equal ones the first of the space."""
    if len(points) > ELITES:
        among = objectives <= np.partition(objectives, ELITES - 1)[ELITES - 1]
        points, objectives = points[among], objectives[among]
    return points[np.lexsort((points, objectives))[:ELITES]]


def _winners(rivals: Indices, belief: NDArray[np.float64]) -> Indices:
    """(n,): of each row of rivals (n, k) the point that is believed to be the best. `belief` is theirs."""
    winners: Indices = np.take_along_axis(rivals, belief.argmin(axis=1)[:, None], axis=1)[:, 0]
    return winners


def _parents(rng: Rng, elites: Indices) -> Indices:
    """Different ones, by lot."""
    return np.unique(_ranked(rng, elites, MUTATED))


def _ranked(rng: Rng, elites: Indices, size: int) -> Indices:
    """Elites by lot; the weight falls linearly with the rank."""
    weights = np.arange(len(elites), 0, -1, dtype=float)
    drawn: Indices = rng.choice(elites, size=size, p=weights / weights.sum())
    return drawn
