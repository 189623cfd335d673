"""The latency that a space file expects: what it comes to, and what the search makes of it, right or wrong."""

from __future__ import annotations

import math
from contextlib import closing
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from autotuner.search.covariance import Floats, Indices
from autotuner.search.surrogate import Surrogate
from autotuner.spaces.space import BranchPoints, Space, SpaceFile
from autotuner.store import Store, queries
from autotuner.tuning.run.driver import Budget, Driver
from autotuner.tuning.run.plan import Plan
from autotuner.tuning.workbench import choose_device, load_space
from autotuner.values.errors import SpaceError
from autotuner.values.variant import Variant
from tests.helpers import simulated
from tests.helpers.fake_line import FakeLine, Truth
from tests.helpers.inline_executor import InlineExecutor

DERIVED = '[derived]\nBLOCKS = "HEADS * ceil_div(SEQ_Q, BLOCK)"\n'
STEPS = 'WAVES = "ceil_div(BLOCKS, 4)"\nNANOSECONDS = "1000 * WAVES * (BLOCK + 16) // UNROLL"\n'


def text_of(steps: str = STEPS, derived: str = DERIVED) -> str:
    return simulated.TOML.replace("[default]", f"{derived}\n[expected_latency]\n{steps}\n[default]")


def space_of(text: str) -> Space:
    return Space.enumerate(SpaceFile.parse(text, Path("expected.toml")), simulated.DEVICE.facts)


def branch_of(text: str) -> BranchPoints:
    """The branch with the most parameters."""
    return space_of(text).branches[1]


SPACE, BARE = branch_of(text_of()), branch_of(simulated.TOML)
ALL = np.arange(len(SPACE))


def written_out(space: Space | BranchPoints, seq_q: int = 64) -> Floats:
    def one(block: int, unroll: int) -> float:
        return math.log(1000 * math.ceil(2 * math.ceil(seq_q / block) / 4) * (block + 16) // unroll)

    points = [space.point(index) for index in range(len(space))]
    return np.array([one(int(point["BLOCK"]), int(point["UNROLL"])) for point in points])


def test_nothing_is_expected_where_a_parameter_does_not_exist_or_a_step_is_not_positive() -> None:
    plain, space = space_of(text_of('STEP = "WIDTH - 4"\nALL = "100 + STEP"\n')).branches
    assert plain.expected is None
    assert space.expected is not None
    widths = [space.point(index)["WIDTH"] for index in range(len(space))]
    wanted = [math.log(96 + int(width)) if int(width) > 4 else math.nan for width in widths]
    np.testing.assert_allclose(space.expected, wanted)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ('A = "B + 1"\nB = "BLOCK"', r"expected_latency\.A: B is no parameter and no fact"),
        ('A = "BLOKS"', r"expected_latency\.A: BLOKS is no parameter and no fact.*did you mean BLOCKS\?"),
        ('A = "BLOCK *"', r"expected_latency\.A: "),
        ("A = 3", r"expected_latency\.A: found 3, expected a string with an expression"),
        ('BLOCK = "HEADS"', r"expected_latency\.BLOCK: a parameter or a fact has this name"),
        ('HEADS = "BLOCK"', r"expected_latency\.HEADS: a parameter or a fact has this name"),
        ('BLOCKS = "BLOCK"', r"expected_latency\.BLOCKS: derived has this name"),
        ('a = "BLOCK"', r"expected_latency\.a: expected a name of capitals"),
        ('A = "8 - BLOCK"', r"expected_latency: positive at no valid point"),
        ('A = "BLOCK // (HEADS - 2)"', r"expected_latency: .*division by zero"),
        ('A = "IMPL"', r"expected_latency: .*it comes to a text"),
    ],
)
def test_bad_steps_are_refused_in_one_line(steps: str, message: str) -> None:
    with pytest.raises(SpaceError, match=rf"expected\.toml: {message}") as caught:
        space_of(text_of(steps + "\n"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "arch", "expecting"),
    [
        *product(("sdpa_cuda", "sdpa_cuda_smoke"), ("sm_80", "sm_89"), ({"mma"},)),
        ("sdpa_cuda", "sm_90", {"mma", "wgmma"}),
    ],
)
def test_the_kept_files_expect_something_of_every_variant_of_these_implementations(
    name: str, arch: str, expecting: set[str]
) -> None:
    file = load_space(name)
    space = Space.enumerate(file, choose_device(file, arch).device.facts)
    assert {each.impl for each in space.branches if each.expected is not None} == expecting
    for each in space.branches:
        if each.expected is not None:
            assert np.isfinite(each.expected).all()
            assert each.expected_spread is not None
            assert 1.2 < each.expected_spread < 20


# The surrogate ----------------------------------------------------------------------------------------------------


def judged(count: int, truth: Floats, seed: int = 0) -> tuple[Indices, Floats]:
    points = np.random.default_rng(seed).choice(len(truth), size=count, replace=False)
    return points, truth[points]


@pytest.mark.parametrize("whole", [True, False])
def test_what_was_judged_counts_more_than_what_was_expected(whole: bool) -> None:
    """An expectation that is the wrong way round is unlearnt."""
    truth = -written_out(SPACE)
    points, objectives = judged(60, truth)
    model = Surrogate.of(SPACE, 0, whole)
    assert model.learn(points, objectives)
    others = np.setdiff1d(ALL, points)
    assert np.corrcoef(model.believe(others)[0], truth[others])[0, 1] > 0.9


# A search ---------------------------------------------------------------------------------------------------------


def searched(folder: Path, space: Space, trials: int) -> list[float]:
    """How many times as long as the fastest each of the first trials' variants takes, where each takes what is expected
    of it, but for STAGES = 3, which takes twice as long."""
    expected = written_out(space)

    def truth(variant: Variant) -> Truth:
        place = space.index_of(variant.point)
        assert place is not None
        return Truth(us=float(np.exp(expected[place] - expected.min())) * (1 + (variant.point["STAGES"] == 3)))

    with closing(Store.open(str(folder / f"{space.branches[0].expected is None}.db"))) as store:
        executor = InlineExecutor(FakeLine(truth, baseline_us=1.0))
        driver = Driver(store, executor, Plan(space, simulated.DEVICE, simulated.conditions()))
        driver.run(Budget(trials=trials))
        return [math.exp(trial.objective) for trial in queries.judged(store, driver.name)]


def test_a_search_begins_with_what_is_expected_to_be_the_fastest(tmp_path: Path) -> None:
    aided, bare = (searched(tmp_path, simulated.alone("fancy", text), 10) for text in (text_of(), simulated.TOML))
    assert aided[0] == bare[0] > 1.5, "both begin with the default point"
    assert aided[1] <= 2.0
    assert min(aided[:7]) == pytest.approx(1.0)
    assert min(bare[:4]) > 1.01
