"""The samplers by name. Each proposes only valid points of the space, and no point twice.

Optuna's own are behind a wrapper: they wish, and the nearest valid point not asked for yet is judged. A stock sampler
knows nothing of constraints between parameters, and asks again for what it had. It is not shown the study itself but a
view of it: the points that were judged, as places in the lists of values.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.samplers import BaseSampler, CmaEsSampler, GPSampler, NSGAIISampler, TPESampler
from optuna.storages import InMemoryStorage
from optuna.study import Study, StudyDirection, load_study
from optuna.trial import FrozenTrial, TrialState
from threadpoolctl import threadpool_limits

from autotuner.search.evolution import EvolutionarySampler
from autotuner.search.point_sampler import PointSampler, Seen
from autotuner.spaces.space import Space
from autotuner.values.errors import InputError
from autotuner.values.plugs import Plugs

Axes = Mapping[str, BaseDistribution]
"""What a sampler sees of each parameter of a space, in their order."""


def axes(space: Space, passing: bool = True) -> dict[str, BaseDistribution]:
    """A number is an integer, the place of its value in the list; a string is categorical, its choices are places.

    Only places that occur at a valid point count. That a parameter does not exist at a point is a place too, -1: every
    parameter is there at every point, so that a sampler can model all of them together. Without `passing` a number that
    does not exist at every point is categorical: -1 is no amount of it.
    """
    found: dict[str, BaseDistribution] = {}
    for column, (name, values) in enumerate(space.values.items()):
        places = np.unique(space.rows[:, column]).tolist()
        if isinstance(values[0], str) or (places[0] < 0 and not passing):
            found[name] = CategoricalDistribution(places)
        else:
            found[name] = IntDistribution(places[0], places[-1])
    return found


class View:
    """A study in memory, with the trials of another under the same numbers, as an inner sampler is to see them.

    Parameters are places (see `axes`) of the points that were judged, whatever was wished for. A point that waits or is
    being judged is a running trial. A reject keeps its constraint, and where the study has +inf it has the worst
    objective measured so far, 0 before there is any: a model of the objective cannot take +inf in, and this number is
    never stored. Trials that failed, or of points that the space lacks, have failed here.
    """

    def __init__(self, space: Space, seen_as: Axes) -> None:
        self._space, self._axes = space, seen_as
        self._storage = InMemoryStorage()
        self._key = self._storage.create_new_study([StudyDirection.MINIMIZE], "view")
        self._unended: list[int] = []
        self._known = 0
        self._rejects: list[int] = []
        self._worst = -math.inf
        self.corrected: Mapping[int, float] = {}
        """Objectives that are shown instead of the study's, by the trial's number."""

    def study(self, sampler: BaseSampler) -> Study:
        """The view as Optuna has studies."""
        return load_study(study_name="view", storage=self._storage, sampler=sampler)

    def trial(self, number: int) -> FrozenTrial:
        """A trial of the view."""
        return self._storage.get_trial(number)  # in a storage with one study a trial's key is its number

    @property
    def attributes(self) -> dict[str, Any]:
        """What an inner sampler has noted for the whole study."""
        return self._storage.get_study_system_attrs(self._key)

    def note(self, attributes: Mapping[str, Any]) -> None:
        """Restores what an inner sampler has noted for the whole study."""
        for key, value in attributes.items():
            self._storage.set_study_system_attr(self._key, key, value)

    def read(self, trials: Sequence[FrozenTrial]) -> None:
        """Takes in what has changed: `trials` are all of the study that is viewed, by number."""
        worst = self._worst
        look_at, self._unended = [*self._unended, *range(self._known, len(trials))], []
        for number in look_at:
            if number >= self._known:
                self._storage.create_new_trial(self._key)
            self._take(trials[number])
        self._known = len(trials)
        if self._worst > worst:
            for number in self._rejects:
                self.trial(number).value = self._worst

    def _take(self, trial: FrozenTrial) -> None:
        number, own = trial.number, self.trial(trial.number)
        for key in trial.system_attrs.keys() - own.system_attrs.keys():
            self._storage.set_trial_system_attr(number, key, trial.system_attrs[key])
        index = self._space.index_of(trial.system_attrs.get("fixed_params", trial.params))
        if index is not None and not own.params:
            for (name, axis), place in zip(self._axes.items(), self._space.rows[index].tolist(), strict=True):
                self._storage.set_trial_param(number, name, axis.to_internal_repr(place), axis)
        if not trial.state.is_finished():
            self._unended.append(number)
        elif trial.state == TrialState.COMPLETE and index is not None and trial.value is not None:
            self._storage.set_trial_state_values(
                number, TrialState.COMPLETE, [self._shown(number, self.corrected.get(number, trial.value))]
            )
        else:
            self._storage.set_trial_state_values(number, TrialState.FAIL)

    def _shown(self, number: int, objective: float) -> float:
        if math.isfinite(objective):
            self._worst = max(self._worst, objective)
            return objective
        self._rejects.append(number)
        return self._worst if math.isfinite(self._worst) else 0.0


class RepairedSampler(PointSampler):
    """An inner sampler of Optuna, whose wishes are moved to the nearest valid point not asked for yet.

    The inner sampler is made anew for each trial, from the seed and the trial's number, and is asked over a `View`.
    What it notes of its own under `state` is kept in the study, in Optuna's tables, so that a study that is stopped and
    resumed goes on as it would have. A trial whose point comes from elsewhere, the default point or an enqueued one, is
    shown to it like one of its own, and its wish is dropped.
    """

    def __init__(
        self,
        space: Space,
        seed: int,
        make: Callable[[int], BaseSampler],
        seen_as: Axes | None = None,
        together: type[BaseDistribution] = BaseDistribution,
        state: tuple[str, ...] = (),
    ) -> None:
        """`make`: an inner sampler from a seed. `seen_as`: the parameters as it sees them; by `axes` if left out.

        `together`: the kind of parameters that it samples jointly; the others it samples one by one. `state`: how the
        names of the attributes begin in which it keeps its state.
        """
        super().__init__(space, seed)
        self._make, self._state = make, state
        self._axes = seen_as if seen_as is not None else axes(space)
        self._free = {name: axis for name, axis in self._axes.items() if not axis.single()}
        self._joint = {name: axis for name, axis in self._free.items() if isinstance(axis, together)}
        self._view: View | None = None
        self._stored: dict[str, Any] = {}
        """The inner sampler's state of the whole study, as the study has it."""
        self._wish = space.rows[space.default_index]

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        if "fixed_params" in trial.system_attrs and not trial.params:  # with parameters it is one that was left running
            self._ask(study, trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        if "fixed_params" not in trial.system_attrs:
            self._ask(study, trial)
        return super().sample_relative(study, trial, search_space)

    def propose(self, study: Study, trial: FrozenTrial, seen: Seen, asked: NDArray[np.bool_]) -> int:
        return self._space.nearest(self._wish, exclude=asked)

    def _ask(self, study: Study, trial: FrozenTrial) -> None:
        """Asks the inner sampler, and keeps its wish and its state. On one thread: builders have the other CPUs."""
        view = self._viewed(study)
        rng = self.generator(trial.number)
        inner = self._make(int(rng.integers(2**31)))
        shown, own = view.study(inner), view.trial(trial.number)
        with threadpool_limits(limits=1):
            places = inner.sample_relative(shown, own, dict(self._joint))
            for name, axis in self._free.items():
                if name not in places:
                    places[name] = inner.sample_independent(shown, own, name, axis)
        self._wish = self._row(places, rng)
        self._keep(study, trial, view)

    def _viewed(self, study: Study) -> View:
        if self._view is None:
            self._view = View(self._space, self._axes)
            self._view.corrected = self._seen.corrected
            self._stored = self._kept(study._storage.get_study_system_attrs(study._study_id))
            self._view.note(self._stored)
        self._view.read(study.get_trials(deepcopy=False))
        return self._view

    def _row(self, places: Mapping[str, int], rng: np.random.Generator) -> NDArray[np.int64]:
        """Value indices (d,) of a wish.

        Should a parameter exist at the point nearby though the wish was that it does not, any of its values will do;
        without one the repair would always come to the first.
        """
        anything = rng.integers([len(values) for values in self._space.values.values()])
        only = self._space.rows[0].tolist()
        wish = np.array([places.get(name, place) for name, place in zip(self._space.parameters, only, strict=True)])
        return np.where(wish >= 0, wish, anything)

    def _keep(self, study: Study, trial: FrozenTrial, view: View) -> None:
        """Writes what the inner sampler has noted of its own for this trial and for the whole study."""
        for key, value in self._kept(view.trial(trial.number).system_attrs).items():
            if key not in trial.system_attrs:
                study._storage.set_trial_system_attr(trial._trial_id, key, value)
        for key, value in self._kept(view.attributes).items():
            if key not in self._stored:
                study._storage.set_study_system_attr(study._study_id, key, value)
                self._stored[key] = value

    def _kept(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in attributes.items() if key.startswith(self._state)}


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


def nsga2(space: Space, seed: int) -> PointSampler:
    """NSGA-II (Deb et al. 2002, doi:10.1109/4235.996017), of one objective an elitist genetic algorithm.

    Generations of 16; any measured point is better than a reject. Of what is in flight when a generation is full, the
    next one's parents are chosen without it.
    """
    return RepairedSampler(space, seed, lambda s: NSGAIISampler(seed=s, population_size=16), state=("NSGAIISampler:",))


def gp(space: Space, seed: int) -> PointSampler:
    """A Gaussian process with the logarithm of expected improvement (Ament et al., arXiv:2310.20708).

    A second one over the constraint says how likely a reject is; points in flight are sampled. Its hyperparameters are
    fitted anew for each proposal, without what the last fit found, so that a resumed study goes on as it would have.
    """
    return RepairedSampler(space, seed, lambda s: GPSampler(seed=s, warn_independent_sampling=False))


def cmaes(space: Space, seed: int) -> PointSampler:
    """CMA-ES (Hansen, arXiv:1604.00772) over the numbers that exist at every point; the other parameters by TPE.

    A generation ends when enough of its trials have: it does not learn from those that come later. It is told of the
    points that were judged, at the places of their values, with the worst objective so far for a reject. A point that
    the repair moved is to CMA-ES an injected solution (Hansen, arXiv:1110.4181), without that paper's limit on the
    length of its step: one far outside of a distribution that has become narrow widens it again.

    Its state is a pickled object in the study, as Optuna writes it: such a study of unknown origin is not to be run.

    Raises InputError where fewer than two numbers exist at every point and have two values there.
    """

    def make(inner_seed: int) -> CmaEsSampler:
        others = TPESampler(seed=inner_seed)
        return CmaEsSampler(seed=inner_seed, independent_sampler=others, warn_independent_sampling=False)

    seen_as = axes(space, passing=False)
    numbers = [name for name, axis in seen_as.items() if isinstance(axis, IntDistribution) and not axis.single()]
    if len(numbers) < 2:
        raise InputError(
            f"the sampler cmaes needs two numbers to choose at every point, and the space {space.name} has "
            f"{len(numbers)}; use another sampler, such as evolution"
        )
    return RepairedSampler(space, seed, make, seen_as, together=IntDistribution, state=("cma:",))


Maker = Callable[[Space, int], PointSampler]
"""Makes a sampler for a space and a seed."""
OWN: dict[str, Maker] = {
    "evolution": EvolutionarySampler,
    "random": RandomPointSampler,
    "tpe": tpe,
    "nsga2": nsga2,
    "cmaes": cmaes,
    "gp": gp,
    "exhaustive": ExhaustiveSampler,
}
SAMPLERS: Plugs[Maker] = Plugs("autotuner.samplers", "sampler", OWN)
"""By the name that a user gives; also those of other packages (docs/reference/own-sampler.md)."""
