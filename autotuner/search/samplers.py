"""The samplers by name. Each proposes only valid points of the space, and no point twice."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import IntDistribution
from optuna.samplers import CmaEsSampler, GPSampler, NSGAIISampler, TPESampler
from optuna.study import Study
from optuna.trial import FrozenTrial

from autotuner.search.evolution import EvolutionarySampler
from autotuner.search.point_sampler import PointSampler, Seen
from autotuner.search.repaired import RepairedSampler, axes
from autotuner.spaces.space import Space
from autotuner.values.errors import InputError
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
