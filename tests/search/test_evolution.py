"""The evolutionary sampler: what it finds, how it works in parallel, and in spaces too large to look at all of it."""

import math
import statistics

import numpy as np
import optuna
import pytest
from numpy.typing import NDArray
from optuna.trial import Trial

from autotuner.search.settings import DEFAULT, SearchSettings
from tests.helpers import simulated
from tests.helpers.searching import ALONE, ask, objective, simulated_variant, study_of

SPACE = simulated.space()
BEST = min(objective(SPACE, point) for point in range(len(SPACE)))


OFFSPRING = SearchSettings(screened_whole=0)
"""No space is small enough to be screened whole."""

either_way = pytest.mark.parametrize("settings", [DEFAULT, OFFSPRING], ids=["whole", "offspring"])


def tell(study: optuna.Study, trial: Trial) -> float:
    place = SPACE.index_of(trial.params)
    assert place is not None
    value = objective(SPACE, place)
    trial.set_constraint("gate", float(math.isinf(value)))
    study.tell(trial, value)
    return value


def found_after(seed: int, settings: SearchSettings) -> int:
    """How many points were judged when the best one was found."""
    study, _ = study_of(seed, settings=settings)
    for number in range(1, len(SPACE) + 1):
        trial, _ = ask(study, SPACE)
        if tell(study, trial) == BEST:
            return number
    raise AssertionError


@either_way
def test_it_finds_the_best_point_long_before_chance_does(settings: SearchSettings) -> None:
    """Chance needs half of the 516 points on average."""
    assert statistics.median(found_after(seed, settings) for seed in range(5)) <= 60


@either_way
def test_only_fresh_valid_points_until_the_last(settings: SearchSettings) -> None:
    small = simulated.small_space()
    study, _ = study_of(0, small, settings)
    seen = set()
    for _ in range(len(small)):
        trial, point = ask(study, small)
        seen.add(small.index_of(point))
        fault = simulated.truth(simulated_variant(point)).fault
        study.tell(trial, math.inf if fault is not None else simulated.microseconds(point))
    assert seen == set(range(len(small)))


@either_way
def test_a_batch_of_32_stays_diverse(settings: SearchSettings) -> None:
    """Asked for without a result between them, they are not all neighbours of one point, as the most promising ones are
    where nothing is known of what is pending."""
    study, sampler = study_of(4, ALONE, settings)
    for _ in range(40):
        tell(study, ask(study, ALONE)[0])
    batch = [ALONE.rows[ALONE.index_of(ask(study, ALONE)[1]) or 0] for _ in range(32)]
    judged = [ALONE.index_of(trial.params) or 0 for trial in study.trials[:40]]
    fresh = np.setdiff1d(np.arange(len(ALONE)), judged)
    greedy = fresh[np.argsort(-sampler._searches[0]._surrogate.gains(fresh, fresh[:0]))[:32]]
    assert len({tuple(row) for row in batch}) == 32
    assert spread(np.array(batch)) > spread(ALONE.rows[greedy])


def spread(rows: NDArray[np.int16]) -> float:
    """The mean number of parameters in which two points differ."""
    return float((rows[:, None] != rows[None]).sum(axis=2).sum() / (len(rows) * (len(rows) - 1)))


@either_way
def test_failures_everywhere_end_nothing(settings: SearchSettings) -> None:
    study, sampler = study_of(2, settings=settings)
    for _ in range(30):
        trial, _ = ask(study, SPACE)
        trial.set_constraint("gate", 1.0)
        study.tell(trial, math.inf)
    assert sampler.promise is None
    assert len({SPACE.index_of(trial.params) for trial in study.trials}) == 30
