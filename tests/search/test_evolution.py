"""The evolutionary sampler: what it finds, how it works in parallel, and in spaces too large to look at all of it."""

import math
import statistics
from collections import Counter
from collections.abc import Sequence

import numpy as np
import optuna
import pytest
from numpy.typing import NDArray
from optuna.trial import Trial

from autotuner.search.branches import BranchRecord, chosen, dropped
from autotuner.search.settings import DEFAULT, SearchSettings
from tests.helpers import simulated
from tests.helpers.searching import ALONE, SPACE, ask, objective, simulated_variant, study_of

WHOLE = simulated.space()
BEST = min(objective(WHOLE, point) for point in range(len(WHOLE)))


OFFSPRING = SearchSettings(screened_whole=0)
"""No space is small enough to be screened whole."""

either_way = pytest.mark.parametrize("settings", [DEFAULT, OFFSPRING], ids=["whole", "offspring"])


def tell(study: optuna.Study, trial: Trial) -> float:
    place = WHOLE.index_of(trial.params)
    assert place is not None
    value = objective(WHOLE, place)
    trial.set_constraint("gate", float(math.isinf(value)))
    study.tell(trial, value)
    return value


def found_after(seed: int, settings: SearchSettings) -> int:
    """How many points were judged when the best one was found."""
    study, _ = study_of(seed, settings=settings)
    for number in range(1, len(WHOLE) + 1):
        trial, _ = ask(study, WHOLE)
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
        trial, _ = ask(study, WHOLE)
        trial.set_constraint("gate", 1.0)
        study.tell(trial, math.inf)
    assert sampler.promise is None
    assert len({WHOLE.index_of(trial.params) for trial in study.trials}) == 30


# The bandit over the branches -----------------------------------------------------------------------------------------


NEVER = math.inf


def drawn(worths: Sequence[Sequence[float]], trials: int) -> tuple[list[int], list[BranchRecord]]:
    """How many of the trials each branch gets whose draws come out so, one after the other, and what is known then."""
    found: list[list[float]] = [[] for _ in worths]
    for _ in range(trials):
        place = chosen(arms_of(worths, found))
        found[place].append(worths[place][len(found[place])])
    return [len(each) for each in found], arms_of(worths, found)


def arms_of(worths: Sequence[Sequence[float]], found: Sequence[Sequence[float]]) -> list[BranchRecord]:
    return [
        BranchRecord(len(own), len(own), min(own, default=NEVER), len(own) == len(each))
        for each, own in zip(worths, found, strict=True)
    ]


def times(best: float, spread: float, count: int = 100, seed: int = 0) -> list[float]:
    """Objectives of a branch whose best is `best` times the baseline's time."""
    return [math.log(best) + each for each in np.random.default_rng(seed).exponential(spread, count).tolist()]


def test_the_draws_go_to_the_branch_of_the_best_point_and_hardly_any_to_a_hopeless_one() -> None:
    """mma has most of the points, and wgmma the best one."""
    mma, wgmma, scalar, broken = times(1.0, 0.7, 1000), times(0.5, 0.3, seed=1), times(20.0, 0.1), [NEVER] * 50
    counts, arms = drawn([mma, wgmma, scalar, broken], 60)
    assert counts[1] > 30
    assert counts[2] == 1
    assert counts[3] <= 3
    left = dropped(arms)
    assert left[2].draws == 1
    assert left[2].behind > 4
    assert 1 not in left


def test_two_branches_that_are_as_fast_are_both_searched() -> None:
    counts, arms = drawn([times(0.9, 0.2), times(0.9, 0.2, seed=3), times(3.0, 0.2)], 60)
    assert min(counts[:2]) >= 12
    assert 0 not in dropped(arms)


def test_a_branch_is_left_once_all_that_are_in_had_their_draws_and_not_for_one_that_is_exhausted() -> None:
    """A branch of which every point was asked for has had its draws, however few they were."""
    fast, slow = BranchRecord(12, 12, math.log(0.5)), BranchRecord(2, 2, math.log(1.2))
    assert dropped([fast, slow]) == {}
    left = dropped([fast, slow._replace(exhausted=True)])
    assert [*left] == [1]
    assert left[1].draws == 3
    assert dropped([fast._replace(exhausted=True), slow._replace(asked=3, judged=3)]) == {}


def test_what_is_left_is_searched_once_all_else_was() -> None:
    worths = [times(1.0, 0.1, 4), times(50.0, 0.1, 5), [NEVER] * 3]
    assert drawn(worths, 12)[0] == [4, 5, 3]


def test_a_study_draws_from_each_branch_first() -> None:
    study, _ = study_of(0)
    found: Counter[object] = Counter()
    for count in range(40):
        trial, point = ask(study, SPACE)
        found[point["IMPL"]] += 1
        place = SPACE.index_of(point)
        assert place is not None
        study.tell(trial, objective(SPACE, place))
        if count == 1:
            assert found == {"plain": 1, "fancy": 1}
    assert min(found.values()) >= 3


def test_a_branch_that_cannot_be_as_fast_as_the_best_of_all_is_drawn_from_no_more() -> None:
    """Its bound decides, however good its few draws look beside its own bound; and it is said to be out by that."""
    slow, fast = BranchRecord(0, 0, NEVER, bound=math.log(2.0)), BranchRecord(2, 2, math.log(0.5), bound=math.log(0.2))
    assert chosen([slow, fast]) == 1
    left = dropped([slow, fast])[0]
    assert left.draws == 0
    assert left.behind == pytest.approx(4.0)
    first = BranchRecord(0, 0, NEVER, bound=math.log(0.2))
    assert chosen([slow, first]) == 0  # nothing is known yet
    assert chosen([slow, fast._replace(exhausted=True)]) == 0  # nothing else is left
    hopes = [first._replace(asked=3, hoped=math.log(each)) for each in (0.8, 1.7, 9.0)]
    assert chosen([slow, *hopes]) == 1  # what was measured elsewhere counts while nothing is judged
    assert chosen([slow._replace(asked=3), *(each._replace(asked=5) for each in hopes[:2]), hopes[2]]) == 1
    assert chosen([hopes[0]._replace(asked=2, judged=1, best=math.log(3.0)), hopes[1]._replace(asked=2)]) == 1


def test_a_first_point_with_much_hope_goes_before_a_branch_with_less() -> None:
    hopes = [BranchRecord(0, 0, NEVER, hoped=math.log(each), next_hoped=math.log(each)) for each in (0.8, 1.5, 2.5)]
    begun = hopes[0]._replace(asked=1, next_hoped=math.log(1.2))
    assert chosen([begun, *hopes[1:]]) == 0
    assert chosen([begun._replace(next_hoped=math.log(1.55)), *hopes[1:]]) == 1
    disappointing = begun._replace(judged=1, best=math.log(1.6))
    assert chosen([disappointing, *hopes[1:]]) == 1
    little = [each._replace(asked=1, next_hoped=math.log(1.7)) for each in hopes[:2]]
    assert chosen([*little, hopes[2]]) == 2  # more than twice the best of all
