"""Derived quantities: what a point amounts to on a problem, and what a study of another shape teaches by them."""

import math
from itertools import product

import numpy as np
import pytest

from autotuner.spaces.space import BranchPoints, Space
from autotuner.tuning.workbench import choose_device, load_space
from autotuner.values.errors import KernelError, SpaceError
from tests.helpers import simulated
from tests.helpers.files import refusals
from tests.helpers.refusing import refused

DERIVED = """
[derived]
BLOCKS = "HEADS * ceil_div(SEQ_Q, BLOCK)"
VECTORS = "BLOCK // WIDTH"
"""
SPACE = simulated.limited(DERIVED)
BRANCH = SPACE.branches[1]
"""That has every quantity."""


def amounts(space: BranchPoints, quantity: int, seq_q: int = 64) -> list[float]:
    """Written out: BLOCKS, or VECTORS."""
    points = [space.point(index) for index in range(len(space))]
    if quantity == 0:
        return [math.log2(2 * math.ceil(seq_q / int(point["BLOCK"]))) for point in points]
    return [math.log2(int(point["BLOCK"]) // int(point["WIDTH"])) for point in points]


def test_quantities_of_every_point() -> None:
    for quantity in range(2):
        np.testing.assert_allclose(BRANCH.derived[:, quantity], amounts(BRANCH, quantity))
    assert list(SPACE.branches[0].branch.derived) == ["BLOCKS"], "what names WIDTH is of the branch that has it"
    assert simulated.space().branches[1].derived.shape == (len(BRANCH), 0)


@pytest.mark.parametrize(("line", "message"), refusals("quantity"))
def test_bad_quantities_are_refused_in_one_line(line: str, message: str) -> None:
    with refused((SpaceError, KernelError), rf"toml: (cpu\.)?{message}"):
        simulated.limited(f"[derived]\n{line}\n")


# The latency that a family expects -----------------------------------------------------------------------------------


BLOCKS_OF_HEADS = '[derived]\nBLOCKS = "HEADS * ceil_div(SEQ_Q, BLOCK)"\n'
STEPS = 'WAVES = "ceil_div(BLOCKS, 4)"\nNANOSECONDS = "1000 * WAVES * (BLOCK + 16) // UNROLL"\n'


def expecting_space(steps: str = STEPS, impl: str = "") -> Space:
    return simulated.limited(f"{BLOCKS_OF_HEADS}\n[expected_latency]\n{steps}\n", impl)


def test_nothing_is_expected_where_a_parameter_does_not_exist_or_a_step_is_not_positive() -> None:
    plain, space = expecting_space('STEP = "WIDTH - 4"\nALL = "100 + STEP"', "fancy").branches
    assert plain.expected is None
    assert space.expected is not None
    widths = [space.point(index)["WIDTH"] for index in range(len(space))]
    wanted = [math.log(96 + int(width)) if int(width) > 4 else math.nan for width in widths]
    np.testing.assert_allclose(space.expected, wanted)


@pytest.mark.parametrize(("steps", "message"), refusals("steps"))
def test_bad_steps_are_refused_in_one_line(steps: str, message: str) -> None:
    with refused((SpaceError, KernelError), rf"toml: (cpu\.)?{message}"):
        expecting_space(steps)


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
