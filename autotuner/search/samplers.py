"""The samplers by name. Each proposes only valid points of the space, and no point twice."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from optuna.samplers import TPESampler
from optuna.study import Study
from optuna.trial import FrozenTrial

from autotuner.search.evolution import EvolutionarySampler
from autotuner.search.point_sampler import PointSampler, Seen
from autotuner.search.repaired import RepairedSampler
from autotuner.spaces.space import Space
from autotuner.values.plugs import Plugs


class RandomPointSampler(PointSampler):
    """Uniform over the valid points not asked for yet."""

    def propose(self, study: Study, trial: FrozenTrial, seen: Seen, asked: NDArray[np.bool_]) -> int:
        return int(self.generator(trial.number).choice(np.flatnonzero(~asked)))


class ExhaustiveSampler(PointSampler):
    """After the default point every valid point, in the order of the space; the seed does not matter."""

    def propose(self, study: Study, trial: FrozenTrial, seen: Seen, asked: NDArray[np.bool_]) -> int:
        return int(np.argmin(asked))


def tpe(space: Space, seed: int) -> PointSampler:
    """Tree-structured Parzen estimators over all parameters together (Watanabe, arXiv:2304.11127).

    Rejects are never among the good trials, and those in flight count as bad ones.
    """
    return RepairedSampler(space, seed, lambda s: TPESampler(seed=s))


Maker = Callable[[Space, int], PointSampler]
"""Makes a sampler for a space and a seed."""
OWN: dict[str, Maker] = {
    "evolution": EvolutionarySampler,
    "random": RandomPointSampler,
    "tpe": tpe,
    "exhaustive": ExhaustiveSampler,
}
SAMPLERS: Plugs[Maker] = Plugs("autotuner.samplers", "sampler", OWN)
"""By the name that a user gives; also those of other packages (docs/reference/own-sampler.md)."""
