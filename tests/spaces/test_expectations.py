"""Derived quantities: what a point amounts to on a problem, and what a study of another shape teaches by them."""

import math
from pathlib import Path

import numpy as np
import pytest

from autotuner.spaces.space import BranchPoints, Space, SpaceFile
from autotuner.values.errors import SpaceError
from tests.helpers import simulated
from tests.helpers.files import refusals

DERIVED = """
[derived]
BLOCKS = "HEADS * ceil_div(SEQ_Q, BLOCK)"
VECTORS = "BLOCK // WIDTH"
"""
TEXT = simulated.TOML.replace("[default]", f"{DERIVED}\n[default]")


def space_of(text: str = TEXT) -> Space:
    return Space.enumerate(SpaceFile.parse(text, Path("derived.toml")), simulated.DEVICE.facts)


def branch_of(text: str = TEXT) -> BranchPoints:
    """The branch that has every quantity."""
    return space_of(text).branches[1]


SPACE, BRANCH = space_of(), branch_of()


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
    assert branch_of(simulated.TOML).derived.shape == (len(BRANCH), 0)


@pytest.mark.parametrize(("line", "message"), refusals("quantity"))
def test_bad_quantities_are_refused_in_one_line(line: str, message: str) -> None:
    with pytest.raises(SpaceError, match=rf"derived\.toml: {message}") as caught:
        space_of(simulated.TOML.replace("[default]", f"[derived]\n{line}\n\n[default]"))
    assert "\n" not in str(caught.value)
