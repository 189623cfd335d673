"""Searches on the simulated space without a driver: asked of a study, told the truth."""

import math

import numpy as np
import optuna
from optuna.trial import Trial

from autotuner.search.covariance import Floats, Indices
from autotuner.search.evolution import EvolutionarySampler
from autotuner.search.settings import DEFAULT, SearchSettings
from autotuner.spaces.space import BranchPoints, Space
from autotuner.values.variant import Value, Variant
from tests.helpers import simulated

SPACE = simulated.space()
ALONE = simulated.alone("fancy")
"""The branch with the most parameters, as a space of its own."""
BRANCH = ALONE.branches[0]
ALL = np.arange(len(BRANCH))
NOBODY = ALL[:0]


def judged(n: int, seed: int = 0) -> tuple[Indices, Floats]:
    """Some points of the branch in random order, and the logarithm of what they take; +inf for a reject."""
    points = np.random.default_rng(seed).choice(len(BRANCH), size=n, replace=False)
    return points, np.array([objective(BRANCH, int(point)) for point in points])


def objective(space: Space | BranchPoints, point: int) -> float:
    found = simulated.truth(Variant.of("sdpa", "cpu", space.point(point)))
    return math.inf if found.fault is not None else math.log(found.us)


def ask(study: optuna.Study, space: Space) -> tuple[Trial, dict[str, Value]]:
    """The next trial and its point, suggested as the driver does."""
    trial = study.ask()
    point: dict[str, Value] = {}
    point["IMPL"] = trial.suggest_categorical("IMPL", space.values["IMPL"])  # type: ignore[assignment]
    for name in space.file.branch(str(point["IMPL"])).parameters:
        point[name] = trial.suggest_categorical(name, space.values[name])  # type: ignore[assignment]
    return trial, point


def simulated_variant(point: dict[str, Value]) -> Variant:
    return Variant.of("sdpa", "cpu", point)


def study_of(
    seed: int, space: Space = SPACE, settings: SearchSettings = DEFAULT
) -> tuple[optuna.Study, EvolutionarySampler]:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = EvolutionarySampler(space, seed, settings)
    return optuna.create_study(sampler=sampler), sampler
