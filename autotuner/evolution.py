"""EvolutionarySampler: elites, mutation to neighbours, crossover repaired to the nearest valid point, immigrants."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from optuna.study import Study
from optuna.trial import FrozenTrial

from autotuner.point_sampler import PointSampler, Seen
from autotuner.space import Space

Rng = np.random.Generator
Mask = NDArray[np.bool_]


class EvolutionarySampler(PointSampler):
    """Steady-state evolution over the enumerated valid points; a point is never asked for twice.

    The first `starts` proposals fill the space. Each later one is an offspring of the `elites` best points measured so
    far, chosen with weight falling by rank: by mutation to an adjacent valid point (share `mutation`), by uniform
    crossover of two elites repaired to the nearest valid point (share `crossover`), or an immigrant. Rejected points
    are no elites; they only are not asked for again.
    """

    def __init__(
        self,
        space: Space,
        seed: int,
        starts: int = 8,
        elites: int = 8,
        mutation: float = 0.6,
        crossover: float = 0.25,
    ) -> None:
        super().__init__(space, seed)
        self._starts, self._elites = starts, elites
        self._mutation, self._crossover = mutation, crossover
        self._near: dict[tuple[int, int], NDArray[np.int64]] = {}
        """The neighbours of a point within a radius: a point is an elite for long."""

    def propose(self, study: Study, trial: FrozenTrial, seen: Seen, asked: Mask) -> int:
        rng = self.generator(trial.number)
        measured = np.isfinite(seen.objectives)
        if len(seen) < self._starts or not measured.any():
            return self._spread(rng, seen, asked)
        objectives, indices = seen.objectives[measured], seen.indices[measured]
        elites = indices[np.lexsort((indices, objectives))[: self._elites]].tolist()
        choice = rng.random()
        if choice < self._mutation:
            child = self._mutant(rng, elites, asked)
        elif choice < self._mutation + self._crossover and len(elites) > 1:
            child = self._crossed(rng, elites, asked)
        else:
            child = None
        return child if child is not None else self._immigrant(rng, asked)

    def _spread(self, rng: Rng, seen: Seen, asked: Mask) -> int:
        """Of some random points the one farthest, in parameters that differ, from everything asked for so far."""
        candidates = rng.choice(np.flatnonzero(~asked), size=32)
        rows = self._space.rows
        earlier = rows[seen.indices]
        distances = (rows[candidates][:, None, :] != earlier[None, :, :]).sum(axis=2).min(axis=1)
        return int(candidates[np.argmax(distances)])

    def _parent(self, rng: Rng, elites: list[int]) -> int:
        """An elite; the weight falls linearly with its rank."""
        weights = np.arange(len(elites), 0, -1, dtype=float)
        return int(rng.choice(elites, p=weights / weights.sum()))

    def _mutant(self, rng: Rng, elites: list[int], asked: Mask) -> int | None:
        """An unseen neighbour of an elite; when the elite has none left, one a step further; None when none at all."""
        parent = self._parent(rng, elites)
        for radius in (1, 2):
            neighbours = self._neighbours(parent, radius)
            fresh = neighbours[~asked[neighbours]]
            if len(fresh):
                return int(rng.choice(fresh))
        return None

    def _neighbours(self, index: int, radius: int) -> NDArray[np.int64]:
        if (index, radius) not in self._near:
            self._near[index, radius] = self._space.neighbours(index, radius)
        return self._near[index, radius]

    def _crossed(self, rng: Rng, elites: list[int], asked: Mask) -> int:
        """Each parameter from either of two elites, then the nearest valid unseen point."""
        mother, father = rng.choice(elites, size=2, replace=False)
        rows = self._space.rows
        child = np.where(rng.random(rows.shape[1]) < 0.5, rows[mother], rows[father])
        return self._space.nearest(child, exclude=asked)

    def _immigrant(self, rng: Rng, asked: Mask) -> int:
        return int(rng.choice(np.flatnonzero(~asked)))
