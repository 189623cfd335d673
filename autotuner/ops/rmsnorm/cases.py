"""The shapes on which rmsnorm is judged, (tokens, hidden_size) each, chosen for the mistakes they show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

from autotuner.ops.op import Cases, OpCase
from autotuner.ops.rmsnorm.problem import RmsNormProblem
from autotuner.values.problem import Problem, Shape
from autotuner.values.variant import Value

QUICK = (
    OpCase((37, 1000), "magnitudes", "Q1 "),
    OpCase((12, 4097), "giant", "Q2 "),
    OpCase((19, 509), "eps", "Q3 "),
    OpCase((200, 203), "randn", "Q4 "),
    OpCase((16, 1024), "zeros", "Q5 "),
)
FULL = (
    OpCase((512, 64), "randn"),
    OpCase((33, 4096), "randn"),
    OpCase((3, 16384), "randn"),
    OpCase((3, 16384), "giant"),
    OpCase((1, 8192), "randn"),
    OpCase((5, 1), "randn"),
    OpCase((1, 1), "randn"),
    OpCase((2, 63), "randn"),
    OpCase((129, 768), "huge"),
    OpCase((65, 515), "tiny"),
    OpCase((65, 515), "equal"),
    OpCase((31, 2048), "eps"),
    OpCase((40, 320), "giant"),
    OpCase((7, 1536), "magnitudes"),
)
COPIED: Shape = (1031, 4093)
"""Large: rounded to 16 bits, an answer differs from another right one in one element of some hundred thousand."""
INVARIANT: Shape = (21, 1003)
"""Ragged in both sizes."""

LONGEST_ROW = 16500
MOST_ROWS = 300
"""No shape around a tile is above these."""

USUAL_ROWS, USUAL_COLUMNS = 4, 256


def full(problem: Problem, tile: tuple[int, ...]) -> Iterator[OpCase]:
    """The matrix beside the quick cases, and sizes around the tile."""
    yield from FULL
    rows, columns = tile
    for length in sorted({columns - 1, columns, columns + 1, 2 * columns + columns // 2 + 1}):
        if 1 <= length <= LONGEST_ROW:
            yield OpCase((5, length), "randn", "tile ")
    for tokens in sorted({rows - 1, rows + 1, 2 * rows + rows // 2}):
        if 1 <= tokens <= MOST_ROWS:
            yield OpCase((tokens, 331), "magnitudes", "tile ")


def tuned(problem: Problem) -> Shape:
    """Rows of the problem's own length; few of them."""
    of = cast(RmsNormProblem, problem)
    return (min(of.tokens, 67), of.hidden_size)


def sanitized(tile: tuple[int, ...]) -> tuple[Shape, ...]:
    """A tool may slow a kernel down a hundred times."""
    rows, columns = tile
    return (3, 67), (1, 1), (min(rows, MOST_ROWS) + 1, min(columns, 4096) + 3)


def tile(parameters: Mapping[str, Value], resources: Mapping[str, int]) -> tuple[int, ...]:
    """(rows, columns): the rows of a block, as the variant is launched or its parameter ROWS; and the columns that the
    threads of a row take in one step, or hold in registers, by the parameters that say so."""

    def number(name: str, usual: int) -> int:
        return int(parameters.get(name, usual))

    rows = resources.get("rows", number("ROWS", USUAL_ROWS))
    columns = number("VEC_WIDTH", 1) * number("LANES", 1) * max(1, number("HOLD", number("UNROLL", 1)))
    return (rows, columns if columns > 1 else USUAL_COLUMNS)


CASES = Cases(
    smoke=(5, 65),
    quick=lambda problem: QUICK,
    full=full,
    tuned=tuned,
    copied=COPIED,
    invariant=INVARIANT,
    repeated=(96, 517),
    soak=(32, 257),
    between=(7, 91),
    between_large=(300, 3000),
    between_distribution="magnitudes",
    sanitized=sanitized,
    tile=tile,
)
