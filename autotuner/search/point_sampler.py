"""The base of all samplers: only valid points of the space, and no point twice."""

from __future__ import annotations

import abc
from bisect import bisect
from collections.abc import Collection, Mapping, Sequence
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
    better: +inf for a reject, NaN without an end: while it is being judged, or when its trial failed.
    A study's trials are read as they end, not all of them for each proposal.
    """

    def __init__(self, space: Space) -> None:
        self._space = space
        self._index = np.empty(0, dtype=np.int64)
        self._objective = np.empty(0)
        """By the trial's number; -1 and NaN where there is no point or no end."""
        self._unended: list[int] = []
        self._listed = np.empty(0, dtype=np.bool_)
        """By the trial's number: whether its point is among `indices`."""
        self._ends: list[tuple[datetime, int]] = []
        """When each COMPLETE trial ended, and its number; sorted."""
        self._ended = np.empty(0, dtype=np.int64)
        """The numbers in `_ends`."""
        self._left_out = set[int]()
        self.indices, self.objectives = self._index, self._objective
        self.corrected: Mapping[int, float] = {}
        """Objectives that count instead of what Optuna was told, by the trial's number."""

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def completed(self) -> NDArray[np.int64]:
        """Positions in `indices` (c,) of the points whose trial is COMPLETE, the first to end first.

        Of trials that ended in the same microsecond the one with the lower number comes first.
        """
        positions = np.cumsum(self._listed, dtype=np.int64) - 1
        return positions[self._ended[self._listed[self._ended]]]

    def read(self, trials: Sequence[FrozenTrial], besides: int, left_out: Collection[int] = ()) -> None:
        """Takes in what has changed: `trials` are all of the study, by number; `besides` is left out. The values of
        those that are `left_out` are none."""
        known = len(self._index)
        self._index = np.append(self._index, np.full(len(trials) - known, -1))
        self._objective = np.append(self._objective, np.full(len(trials) - known, np.nan))
        look_at, self._unended = [*self._unended, *range(known, len(trials))], []
        for number in look_at:
            self._note(trials[number])
        self._leave_out(left_out)
        self._listed = self._index >= 0
        self._listed[besides] = False
        self.indices, self.objectives = self._index[self._listed], self._objective[self._listed]

    def _leave_out(self, numbers: Collection[int]) -> None:
        self._objective[list(numbers)] = np.nan
        if not self._left_out.issuperset(numbers):
            self._left_out.update(numbers)
            self._ends = [end for end in self._ends if end[1] not in self._left_out]
            self._ended = np.array([number for _, number in self._ends], dtype=np.int64)

    def _note(self, trial: FrozenTrial) -> None:
        number = trial.number
        if not trial.state.is_finished():
            self._unended.append(number)
        if self._index[number] < 0:  # a trial gets its parameters one by one
            index = self._space.index_of(trial.system_attrs.get("fixed_params", trial.params))
            self._index[number] = -1 if index is None else index
        if trial.state == TrialState.COMPLETE:
            self._objective[number] = self.corrected.get(number, trial.value)
            end = trial.datetime_complete or datetime.min, number
            place = bisect(self._ends, end)
            self._ends.insert(place, end)
            self._ended = np.insert(self._ended, place, number)


class PointSampler(BaseSampler):
    """Base of all samplers here: proposes the index of one valid, unseen point.

    The first proposal of a study is the space's default point, unless the sampler knows better. Randomness depends on
    the seed and the trial's number alone, so a study that is stopped and resumed goes on as it would have.
    """

    promise: float | None = None
    """The expected improvement of the last proposal, in units of the objective; None of a sampler without beliefs."""

    left_out: Collection[int] = ()
    """Numbers of trials whose values do not count, although Optuna has them."""

    def __init__(self, space: Space, seed: int) -> None:
        self._space, self._seed = space, seed
        self._seen = Seen(space)

    def correct(self, objectives: Mapping[int, float]) -> None:
        """These objectives, by the trial's number, count instead of those that Optuna was told; +inf is a reject.

        To be called before the first proposal.
        """
        self._seen.corrected = objectives

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
        seen.read(study.get_trials(deepcopy=False), trial.number, self.left_out)
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
