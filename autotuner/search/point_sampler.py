"""The base of all samplers: only valid points of the space, and no point twice."""

import abc
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from autotuner.spaces.space import Space


class Seen:
    """The points that were asked for earlier in a study, in order of asking.

    `indices` (m,) int64 are their places in the space; `objectives` (m,) are ln(t_variant / t_baseline), lower is
    better: +inf for a reject, NaN without an end: while it is being judged, or when its trial failed. `completed` (c,)
    are the positions in these of the points whose trial is COMPLETE, the first to end first; of those that ended in the
    same microsecond the one with the lower number.
    """

    def __init__(self, space: Space) -> None:
        self._space = space
        self._index: dict[int, int] = {}
        """The point of each trial that has one, by the trial's number."""
        self.corrected: Mapping[int, float] = {}
        """Objectives that count instead of what Optuna was told, by the trial's number."""
        self.indices = self.completed = np.empty(0, dtype=np.int64)
        self.objectives = np.empty(0)

    def read(self, trials: Sequence[FrozenTrial], besides: int) -> None:
        """Takes in what has changed: `trials` are all of the study, by number; `besides` is left out."""
        listed = [trial for trial in trials if trial.number != besides and self._knows(trial)]
        ended: list[tuple[datetime, int]] = []
        self.indices = np.array([self._index[trial.number] for trial in listed], dtype=np.int64)
        self.objectives = np.full(len(listed), np.nan)
        for position, trial in enumerate(listed):
            if trial.state == TrialState.COMPLETE:
                self.objectives[position] = self.corrected.get(trial.number, trial.value)
                ended.append((trial.datetime_complete or datetime.min, position))
        self.completed = np.array([position for _, position in sorted(ended)], dtype=np.int64)

    def _knows(self, trial: FrozenTrial) -> bool:
        """Whether a trial has a point of the space: it gets its parameters one by one."""
        if trial.number not in self._index:
            index = self._space.index_of(trial.system_attrs.get("fixed_params", trial.params))
            if index is not None:
                self._index[trial.number] = index
        return trial.number in self._index


class PointSampler(BaseSampler):
    """Base of all samplers here: proposes the index of one valid, unseen point.

    The first proposal of a study is the space's default point, unless the sampler knows better. Randomness depends on
    the seed and the trial's number alone, so a study that is stopped and resumed goes on as it would have.
    """

    promise: float | None = None
    """The expected improvement of the last proposal, in units of the objective; None of a sampler without beliefs."""

    def __init__(self, space: Space, seed: int) -> None:
        self._space, self._seed = space, seed
        self._seen = Seen(space)

    def correct(self, objectives: Mapping[int, float]) -> None:
        """These objectives, by the trial's number, count instead of those that Optuna was told; +inf is a reject.

        To be called before the first proposal.
        """
        self._seen.corrected = objectives

    def bound(self, bounds: Sequence[float]) -> None:
        """For each branch of the space the lowest objective that a point of it can have here. Without branches of its
        own a sampler has no use for it."""

    @abc.abstractmethod
    def propose(self, study: Study, trial: FrozenTrial, seen: Seen, asked: NDArray[np.bool_]) -> int:
        """Index of the point to judge next. `asked` (N,) marks the points that were asked for; never all of them."""

    def opened(self, study: Study, asked: NDArray[np.bool_]) -> bool:
        """Whether `propose` is to choose: once the default point was asked for."""
        return bool(asked[self._space.default_index])

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
            return dict(trial.system_attrs["fixed_params"])
        seen = self._seen
        seen.read(study.get_trials(deepcopy=False), trial.number)
        asked = np.zeros(len(self._space), dtype=bool)
        asked[seen.indices] = True
        if asked.all():
            raise ValueError("every point of the space has been asked for")
        index = self.propose(study, trial, seen, asked) if self.opened(study, asked) else self._space.default_index
        return dict(self._space.point(index))

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        raise ValueError(f"{param_name} is not a parameter of the space {self._space.name}")


def distributions(space: Space) -> dict[str, BaseDistribution]:
    """Each parameter of the space as Optuna sees it."""
    return {name: CategoricalDistribution(values) for name, values in space.values.items()}
