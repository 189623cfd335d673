"""The samplers by name. Each proposes only valid points of the space, and no point twice.

An Optuna sampler knows nothing of constraints between parameters; stock ones spend a quarter to a half of their asks on
repeats or invalid points. Here the wish of such a sampler is moved to the nearest valid point not asked before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna.samplers import BaseSampler, NSGAIISampler, TPESampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from autotuner.evolution import EvolutionarySampler
from autotuner.point_sampler import PointSampler, Seen, distributions
from autotuner.space import Space


class RandomPointSampler(PointSampler):
    """Uniform over the valid points not asked for yet."""

    def propose(self, study: Study, trial: FrozenTrial, seen: Seen, asked: NDArray[np.bool_]) -> int:
        return int(self.generator(trial.number).choice(np.flatnonzero(~asked)))


class RepairedSampler(PointSampler):
    """An Optuna sampler whose wishes are moved to the nearest valid point not asked for yet."""

    def __init__(self, space: Space, seed: int, make: Callable[[int], BaseSampler]) -> None:
        super().__init__(space, seed)
        self._make = make
        self._inner = make(seed)

    def propose(self, study: Study, trial: FrozenTrial, seen: Seen, asked: NDArray[np.bool_]) -> int:
        wish = self._wish(study, trial)
        row = np.array([values.index(wish[name]) for name, values in self._space.values.items()], dtype=np.int16)
        return self._space.nearest(row, exclude=asked)

    def _wish(self, study: Study, trial: FrozenTrial) -> dict[str, Any]:
        """What the inner sampler would like, a value for each parameter whether it exists there or not."""
        self._inner = self._make(int(self.generator(trial.number).integers(2**31)))
        common = self._inner.infer_relative_search_space(study, trial)
        wish = dict(self._inner.sample_relative(study, trial, common))
        for name, distribution in distributions(self._space).items():
            if name not in wish:
                wish[name] = self._inner.sample_independent(study, trial, name, distribution)
        return wish

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        self._inner.before_trial(study, trial)

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        self._inner.after_trial(study, trial, state, values)


SAMPLERS: dict[str, Callable[[Space, int], PointSampler]] = {
    "evolution": EvolutionarySampler,
    "random": RandomPointSampler,
    "tpe": lambda space, seed: RepairedSampler(space, seed, lambda s: TPESampler(seed=s)),
    "nsga2": lambda space, seed: RepairedSampler(space, seed, lambda s: NSGAIISampler(seed=s, population_size=16)),
}
"""Each makes its sampler for a space and a seed."""
