"""What is told of a study, where the truth is known: a simulated landscape, the real driver, a store."""

import json
import math
import random
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from autotuner.spaces.space import Space
from autotuner.store import Store, queries
from autotuner.values.errors import InputError
from autotuner.values.variant import Variant
from autotuner.views.beliefs import StudyBeliefs, study_beliefs
from autotuner.views.beliefs_text import SHOWN, lines
from autotuner.views.surrogate_beliefs import Beliefs, share_alone, share_together
from autotuner.views.words import percent, ratio
from tests.helpers import simulated
from tests.helpers.command_line import autotuner
from tests.helpers.driven import swept
from tests.helpers.fake_line import FakeLine, Truth
from tests.helpers.inline_executor import InlineExecutor

SPACE = simulated.space()
BEST = {"IMPL": "fancy", "BLOCK": 64, "UNROLL": 4, "STAGES": 2, "WIDTH": 16, "MODE": "b"}


def right(variant: Variant) -> Truth:
    """Nothing is rejected."""
    return Truth(us=simulated.microseconds(variant.point))


def sweep(
    store: Store,
    trials: int,
    sampler: str = "evolution",
    known: Callable[[Variant], Truth] = simulated.truth,
    space: Space = SPACE,
    seed: int = 0,
) -> str:
    """A study's name."""
    random.seed(seed)  # a race draws the order of its arms from this
    executor = InlineExecutor(FakeLine(known, noise=0.005, seed=seed))
    return swept(store, executor, trials, space=space, sampler=sampler, seed=seed)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("beliefs")


@pytest.fixture(scope="module")
def store_of_a_sweep(folder: Path) -> Iterator[Store]:
    with closing(Store.open(str(folder / "studies.db"))) as opened:
        sweep(opened, 110)
        yield opened


@pytest.fixture(scope="module")
def told(store_of_a_sweep: Store) -> StudyBeliefs:
    return study_beliefs(store_of_a_sweep, queries.resolve_study(store_of_a_sweep))


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Store]:
    with closing(Store.open(str(tmp_path / "studies.db"))) as opened:
        yield opened


def beliefs(found: StudyBeliefs) -> Beliefs:
    assert found.beliefs is not None
    return found.beliefs


# Importance -----------------------------------------------------------------------------------------------------


def test_shares_in_a_product_space_are_those_of_sobol() -> None:
    """f = 2 a + b + a b over {-1, 1} x {-1, 0, 1}: the variances of the parts are 4, 2/3 and 2/3."""
    a, b = (each.ravel() for each in np.meshgrid([-1.0, 1.0], [-1.0, 0.0, 1.0]))
    columns = ((a + 1) / 2).astype(np.int16), (b + 1).astype(np.int16)
    function = 2 * a + b + a * b
    found = [share_alone(column, function) for column in columns], share_together(*columns, function)
    assert found[0] == pytest.approx([12 / 16, 2 / 16])
    assert found[1] == pytest.approx(2 / 16)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("sampler", ["evolution", "random"])
def test_parameters_matter_in_the_order_of_the_truth(empty: Store, sampler: str) -> None:
    found = beliefs(study_beliefs(empty, sweep(empty, 110, sampler, right)))
    true = np.array([math.log(simulated.microseconds(SPACE.point(index))) for index in range(len(SPACE))])
    edge = np.minimum(true, np.quantile(true, 0.25))
    columns = {name: SPACE.rows[:, place] for place, name in enumerate(SPACE.parameters)}
    shares = {name: share_alone(column, true) for name, column in columns.items()}
    fast = {name: share_alone(column, edge) for name, column in columns.items()}
    clear = sorted(shares, key=lambda name: -shares[name])[:2]  # WIDTH is nearly what BLOCK is
    assert clear == ["IMPL", "BLOCK"]
    assert found.parameters[0].parameter == "IMPL"
    for effect in found.parameters:
        assert effect.share == pytest.approx(shares[effect.parameter], abs=0.12)
        assert effect.fast_share == pytest.approx(fast[effect.parameter], abs=0.12)
    assert {each.parameter for each in found.parameters[-2:]} == {"UNROLL", "STAGES"}


def test_the_best_value_of_each_parameter_is_found(told: StudyBeliefs) -> None:
    found = beliefs(told)
    assert {each.parameter: each.values[0].value for each in found.parameters} == BEST
    for effect in found.parameters:
        assert effect.values[0].slower == 0.0
        assert [each.slower for each in effect.values] == sorted(each.slower for each in effect.values)
    (unroll,) = (each for each in found.parameters if each.parameter == "UNROLL")
    slower = {each.value: each.slower for each in unroll.values}
    assert slower[2] == pytest.approx(math.expm1(0.1), abs=0.06)
    assert sum(each.points for each in unroll.values) == len(SPACE)
    assert sum(each.judged for each in unroll.values) == told.judged


# What is left ----------------------------------------------------------------------------------------------------


def test_three_trials_say_that_they_are_too_few(empty: Store, tmp_path: Path) -> None:
    """One of them is a reject."""
    found = study_beliefs(empty, sweep(empty, 3))
    assert found.beliefs is None
    (line,) = (line for line in lines(found) if "Too few" in line)
    assert "2, and 20 are needed" in line
    assert "autotuner tune" in line


def test_a_space_that_is_another_one_by_now_is_refused(empty: Store) -> None:
    name = sweep(empty, 1)
    other = queries.study(empty, name).model_copy(update={"name": "other", "space_digest": 64 * "0"})
    empty.ensure_study(other)
    with pytest.raises(InputError, match="other valid points"):
        study_beliefs(empty, "other")


# Words and JSON ------------------------------------------------------------------------------------------


def _rounded(found: StudyBeliefs) -> object:
    """Without the last bits of sums, which another process may add in another order."""
    return json.loads(found.model_dump_json(), parse_float=lambda text: round(float(text), 9))


@pytest.mark.slow
def test_the_command_says_the_same_in_words_and_json(told: StudyBeliefs, folder: Path) -> None:
    words = autotuner(folder, "explain", told.study[:12])
    assert words.returncode == 0, words.stderr
    assert words.stdout.splitlines()[-len(lines(told)) :] == lines(told)
    document = autotuner(folder, "explain", "--json")
    assert _rounded(StudyBeliefs.model_validate_json(document.stdout)) == _rounded(told)
    found = beliefs(told)
    for effect in found.parameters:
        if max(effect.share, effect.fast_share) < SHOWN:
            continue
        assert re.search(
            rf"{effect.parameter} +{percent(effect.share, 1)} +{percent(effect.fast_share, 1)}", words.stdout
        )
        for value in effect.values:
            figures = f"{percent(value.slower, 1)} +{ratio(value.speedup)} +{ratio(value.best)}"
            assert re.search(rf"{effect.parameter}={value.value} +{figures}", words.stdout)
    assert "Converged" in words.stdout
