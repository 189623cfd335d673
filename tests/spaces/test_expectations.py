"""Derived quantities: what a point amounts to on a problem, and what a study of another shape teaches by them."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from autotuner.search.surrogate import Surrogate
from autotuner.spaces.expectations import doublings
from autotuner.spaces.space import Space, SpaceFile
from autotuner.values.errors import SpaceError
from autotuner.values.known_points import KnownPoints
from tests.helpers import simulated

DERIVED = """
[derived]
BLOCKS = "HEADS * ceil_div(SEQ_Q, BLOCK)"
VECTORS = "BLOCK // WIDTH"
"""
TEXT = simulated.TOML.replace("[default]", f"{DERIVED}\n[default]")


def space_of(text: str = TEXT) -> Space:
    return Space.enumerate(SpaceFile.parse(text, Path("derived.toml")), simulated.DEVICE.facts)


SPACE = space_of()


def amounts(space: Space, quantity: int, seq_q: int = 64) -> list[float]:
    """Written out: BLOCKS, or VECTORS; NaN where there is no WIDTH."""
    points = [space.point(index) for index in range(len(space))]
    if quantity == 0:
        return [math.log2(2 * math.ceil(seq_q / int(point["BLOCK"]))) for point in points]
    return [math.log2(int(p["BLOCK"]) // int(p["WIDTH"])) if "WIDTH" in p else math.nan for p in points]


def test_quantities_of_every_point() -> None:
    for quantity in range(2):
        np.testing.assert_allclose(SPACE.derived[:, quantity], amounts(SPACE, quantity))
    assert np.isnan(SPACE.derived[:, 1]).any()
    assert space_of(simulated.TOML).derived.shape == (len(SPACE), 0)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('BLOCKS = "HEADS * BLOK"', r"derived\.BLOCKS: BLOK is no parameter and no fact.*did you mean BLOCK\?"),
        ('BLOCKS = "HEADS *"', r"derived\.BLOCKS: "),
        ("BLOCKS = 3", r"derived\.BLOCKS: found 3, expected a string with an expression"),
        ('BLOCK = "HEADS"', r"derived\.BLOCK: a parameter or a fact has this name"),
        ('HEADS = "BLOCK"', r"derived\.HEADS: a parameter or a fact has this name"),
        ('Blocks = "BLOCK"', r"derived\.Blocks: expected a name of capitals"),
        ('BLOCKS = "8 - BLOCK"', r"derived\.BLOCKS: positive at no valid point"),
        ('BLOCKS = "BLOCK // (HEADS - 2)"', r"derived: .*division by zero"),
    ],
)
def test_bad_quantities_are_refused_in_one_line(line: str, message: str) -> None:
    with pytest.raises(SpaceError, match=rf"derived\.toml: {message}") as caught:
        space_of(simulated.TOML.replace("[default]", f"[derived]\n{line}\n\n[default]"))
    assert "\n" not in str(caught.value)


# Another shape ------------------------------------------------------------------------------------------------------


def cost(blocks: float) -> float:
    """Best at 2^3 blocks, whatever makes them."""
    return abs(blocks - 3.0)


def informed_by(derived: bool) -> Surrogate:
    """A surrogate for SPACE's 64 rows, told of a problem with 256 by some of its points."""
    longer = SPACE.file.problems[0].model_copy(update={"seq_q": 256})
    points = np.random.default_rng(0).permutation(len(SPACE))[:80]
    there = doublings(SPACE.file, SPACE.facts, [longer], SPACE.rows[points])
    known = tuple(tuple(None if math.isnan(each) else each for each in row) for row in there.tolist())
    objectives = tuple(cost(row[0]) for row in there.tolist())
    places = tuple(points.tolist())
    known_points = KnownPoints(study="longer", points=places, objectives=objectives, derived=known if derived else ())
    return Surrogate.of(SPACE, 0, whole=True, known=KnownPoints.model_validate_json(known_points.model_dump_json()))


def test_what_was_learnt_of_a_quantity_holds_for_another_shape() -> None:
    """There blocks of 64 rows make the best grid, here blocks of 16."""
    truth = np.array([cost(each) for each in SPACE.derived[:, 0]])
    informed, plain = informed_by(True).earlier, informed_by(False).earlier
    assert informed is not None
    assert plain is not None
    chosen, misled = (SPACE.point(int(np.argmin(each.belief))) for each in (informed, plain))
    assert (chosen["BLOCK"], misled["BLOCK"]) == (16, 64)
    assert np.corrcoef(informed.belief, truth)[0, 1] > 0.5 > 0 > np.corrcoef(plain.belief, truth)[0, 1]
