"""The base of all samplers: only valid points of the space, and no point twice."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from autotuner.model import Model
from autotuner.space import Space
from autotuner.variant import Value


class Seen(Model):
    """A point asked for earlier in the study."""

    index: int
    objective: float | None
    """ln(t_variant / t_baseline), lower is better; +inf for a reject; None while it is being judged."""


class PointSampler(BaseSampler):
    """Base of all samplers here: proposes the index of one valid, unseen point.

    The first proposal of a study is the space's default point. Randomness depends on the seed and the trial's number
    alone, so a study that is stopped and resumed goes on as it would have.
    """

    def __init__(self, space: Space, seed: int) -> None:
        self._space, self._seed = space, seed
        self._index_of_trial: dict[int, int | None] = {}

    @abc.abstractmethod
    def propose(self, study: Study, trial: FrozenTrial, seen: Sequence[Seen], asked: NDArray[np.bool_]) -> int:
        """Index of the point to judge next. `asked` (N,) marks the points that were asked for; never all of them."""

    def generator(self, number: int) -> np.random.Generator:
        """The randomness of one trial."""
        return np.random.default_rng([self._seed, number])

    # Optuna's protocol ------------------------------------------------------------------------------------------

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return distributions(self._space)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        if "fixed_params" in trial.system_attrs:  # enqueued: the point is known already
            return {}
        seen = self._history(study, trial)
        asked = np.zeros(len(self._space), dtype=bool)
        asked[[item.index for item in seen]] = True
        if asked.all():
            raise ValueError("every point of the space has been asked for")
        start = self._space.default_index
        index = start if not asked[start] else self.propose(study, trial, seen, asked)
        return dict(self._space.point(index))

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        raise ValueError(f"{param_name} is not a parameter of the space {self._space.name}")

    def _history(self, study: Study, trial: FrozenTrial) -> list[Seen]:
        """What was asked for so far, in order of asking."""
        seen: list[Seen] = []
        for other in study.get_trials(deepcopy=False):
            if other.number == trial.number:
                continue
            params = other.system_attrs.get("fixed_params", other.params)
            index = self._known(other, params)
            if index is not None:
                seen.append(Seen(index=index, objective=other.value if other.state == TrialState.COMPLETE else None))
        return seen

    def _known(self, trial: FrozenTrial, params: dict[str, Value]) -> int | None:
        if trial.number not in self._index_of_trial or not trial.state.is_finished():
            self._index_of_trial[trial.number] = self._space.index_of(params)
        return self._index_of_trial[trial.number]


def distributions(space: Space) -> dict[str, BaseDistribution]:
    """Each parameter of the space as Optuna sees it."""
    return {name: CategoricalDistribution(values) for name, values in space.values.items()}
