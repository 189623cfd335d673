"""The shapes on which attention is judged, (batch, heads, seq_q, seq_k) each, chosen for the mistakes they show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

from autotuner.ops.op import Cases, OpCase
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.values.problem import Problem, Shape
from autotuner.values.variant import Value

QUICK = (
    OpCase((2, 2, 200, 200), "big_v", "Q1 "),
    OpCase((2, 3, 200, 200), "one_hot", "Q2 "),
    OpCase((2, 3, 509, 509), "randn", "Q3 "),
    OpCase((2, 3, 113, 203), "randn", "Q4 "),
)
FULL = (
    OpCase((1, 8, 512, 512), "randn"),
    OpCase((2, 3, 203, 113), "randn"),
    OpCase((2, 2, 1, 130), "randn"),
    OpCase((2, 2, 65, 1), "randn"),
    OpCase((1, 1, 1, 1), "randn"),
    OpCase((2, 3, 257, 257), "large"),
    OpCase((2, 2, 257, 257), "huge"),
    OpCase((2, 2, 200, 200), "tiny_v"),
    OpCase((2, 2, 200, 200), "zero_q"),
    OpCase((2, 2, 200, 200), "uniform01"),
    OpCase((2, 2, 200, 200), "const_v"),
)
LONG_CAUSAL: Shape = (1, 1, 2049, 2049)
INVARIANT: Shape = (2, 3, 113, 203)
"""Ragged, with more keys than queries, and several heads and batches."""

LONGEST_TILE_CASE = 520
"""No length around a tile is above this."""

USUAL_TILE = 64


def full(problem: Problem, tile: tuple[int, ...]) -> Iterator[OpCase]:
    """The matrix beside the quick cases; a long one where there is a mask; and lengths around the tile."""
    yield from FULL
    if cast(SdpaProblem, problem).causal:
        yield OpCase(LONG_CAUSAL, "randn")
    for length in tile_lengths(tile):
        yield OpCase((1, 2, length, length), "randn", "tile ")


def tile_lengths(tile: tuple[int, ...]) -> tuple[int, ...]:
    """Lengths at which a tail appears, just fits, or is just absent."""
    block_m, block_n = tile
    lengths = {block_m - 1, block_m, block_m + 1, block_n - 1, block_n, block_n + 1, 2 * block_n + block_n // 2 + 1}
    return tuple(sorted(length for length in lengths if 1 <= length <= LONGEST_TILE_CASE))


def tuned(problem: Problem) -> Shape:
    """The lengths of the problem with few heads."""
    of = cast(SdpaProblem, problem)
    return (1, min(of.heads, 2), of.seq_q, of.seq_k)


def sanitized(tile: tuple[int, ...]) -> tuple[Shape, ...]:
    """A tool may slow a kernel down a hundred times: no case is much longer than LONGEST_TILE_CASE."""
    block_m, block_n = (min(block, LONGEST_TILE_CASE) for block in tile)
    return (1, 2, 33, 17), (2, 1, 1, 5), (1, 2, block_m + 1, block_n + 3)


def tile(parameters: Mapping[str, Value], resources: Mapping[str, int]) -> tuple[int, ...]:
    """(query rows, keys): as the variant is launched, else its parameters BLOCK_M and BLOCK_N, else USUAL_TILE."""
    block_m = resources.get("rows", parameters.get("BLOCK_M", USUAL_TILE))
    return (int(block_m), int(parameters.get("BLOCK_N", USUAL_TILE)))


CASES = Cases(
    smoke=(1, 2, 65, 65),
    quick=QUICK,
    full=full,
    tuned=tuned,
    copied=(2, 3, 509, 509),
    invariant=INVARIANT,
    repeated=(1, 8, 257, 257),
    soak=(1, 4, 129, 129),
    between=(1, 3, 70, 91),
    between_large=(2, 8, 300, 300),
    between_distribution="large",
    sanitized=sanitized,
    tile=tile,
)
