"""Derived quantities: what a point amounts to on a problem, and what a study of another shape teaches by them."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from autotuner.search.covariance import Hypers, Steps
from autotuner.search.surrogate import Surrogate
from autotuner.spaces.expectations import doublings
from autotuner.spaces.space import Space, SpaceFile
from autotuner.values.errors import SpaceError
from autotuner.values.known_points import KnownPoints
from autotuner.views import space_tables
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


def test_of_several_problems_the_mean() -> None:
    problem = TEXT[TEXT.index("[[problems]]") : TEXT.index("[parameters]")]
    both = space_of(TEXT.replace(problem, problem + problem.replace("seq_q = 64", "seq_q = 1024")))
    mean = (np.array(amounts(both, 0)) + np.array(amounts(both, 0, seq_q=1024))) / 2
    np.testing.assert_allclose(both.derived[:, 0], mean)


def test_quantities_are_rounded_to_a_quarter_of_a_doubling() -> None:
    thirds = space_of(TEXT.replace("HEADS * ceil_div(SEQ_Q, BLOCK)", "3 * BLOCK"))
    exact = np.log2([3 * int(thirds.point(index)["BLOCK"]) for index in range(len(thirds))])
    assert np.abs(thirds.derived[:, 0] - exact).max() <= 0.125
    assert set((4 * thirds.derived[:, 0]) % 1) == {0.0}


def test_a_study_is_the_same_with_and_without() -> None:
    assert SPACE.digest == space_of(simulated.TOML).digest


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


def test_a_step_of_a_quantity_is_the_difference_in_doublings() -> None:
    steps = Steps(SPACE)
    assert steps.names[-2:] == ["BLOCKS", "VECTORS"]
    lengths, shares = np.full(len(steps), 1e9), np.linspace(0.1, 0.9, len(steps))
    lengths[-2] = 0.5
    squares = steps.squares(Hypers(lengths, 0.01, shares))
    every = np.arange(len(SPACE))
    found = steps.spread_out(squares, every) @ steps.marks(every)
    blocks = SPACE.derived[:, 0]
    far = np.abs(blocks[:, None] - blocks) / np.ptp(blocks)
    np.testing.assert_allclose(found, (far / 0.5) ** 2, atol=1e-4)


def test_the_absence_of_a_quantity_is_a_whole_step() -> None:
    far = Steps(SPACE).far[-1]
    assert far[0, 0] == 0
    assert set(far[0, 1:]) == {1.0}
    assert far.max() == 1


def test_a_space_shows_its_quantities() -> None:
    assert SPACE.derived_ranges == {"BLOCKS": (2.0, 16.0), "VECTORS": (1.0, 32.0)}
    document = space_tables.space_document(SPACE)
    assert document["derived"][0] == {
        "name": "BLOCKS",
        "expression": "HEADS * ceil_div(SEQ_Q, BLOCK)",
        "least": 2.0,
        "greatest": 16.0,
    }
    console = Console(width=120)
    with console.capture() as captured:
        console.print(space_tables.space_shown(SPACE))
    assert re.search(r"BLOCKS +HEADS \* ceil_div\(SEQ_Q, BLOCK\) +2 +16", captured.get())


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


def test_known_points_without_the_quantities_are_taken_as_they_were() -> None:
    """A study may have begun before its space file had any, or had others."""
    short = KnownPoints(study="old", points=(1, 2, 3), objectives=(0.1, 0.2, 0.3), derived=((1.0,), (2.0,), (3.0,)))
    other = Surrogate.of(SPACE, 0, whole=True, known=short).earlier
    none = Surrogate.of(SPACE, 0, whole=True, known=short.model_copy(update={"derived": ()})).earlier
    assert other is not None
    assert none is not None
    np.testing.assert_array_equal(other.belief, none.belief)


def test_points_beside_have_the_slots_of_the_other_problem() -> None:
    longer = SPACE.file.problems[0].model_copy(update={"seq_q": 4096})
    points = np.array([3, 100, 400])
    there = doublings(SPACE.file, SPACE.facts, [longer], SPACE.rows[points])
    steps = Steps(SPACE, there)
    both = steps.beside(points, there)
    assert len(both.slots) == len(SPACE) + 3
    assert (both.slots[: len(SPACE)] == steps.slots).all()
    more = both.slots[len(SPACE) :]
    assert (more[:, :-2] == steps.slots[points, :-2]).all()
    levels = np.unique(np.concatenate([SPACE.derived[:, 0], there[:, 0]]))
    wanted = np.searchsorted(levels, there[:, 0]) - np.searchsorted(levels, SPACE.derived[points, 0])
    assert (more - steps.slots[points])[:, -2].tolist() == wanted.tolist()
    assert (steps.beside(points, None).slots[len(SPACE) :] == steps.slots[points]).all()
