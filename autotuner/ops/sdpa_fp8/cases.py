"""The shapes on which attention from FP8 is judged, as those of attention are: (batch, heads, seq_q, seq_k), where a
problem with groups gives Q twice as many heads; or it ends with heads_kv."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from autotuner.ops.op import OpCase
from autotuner.ops.sdpa import cases
from autotuner.ops.sdpa_fp8.problem import SdpaFp8Problem
from autotuner.values.problem import Problem

QUICK = (
    OpCase((2, 3, 200, 200), "descales", "Q1 "),
    OpCase((2, 3, 200, 200), "one_hot", "Q2 "),
    OpCase((2, 3, 509, 509), "randn", "Q3 "),
    OpCase((2, 3, 113, 203), "loud_head", "Q4 "),
    OpCase((1, 2, 40, 4097), "tail", "Q5 "),
)
FULL = (
    OpCase((1, 8, 512, 512), "randn"),
    OpCase((2, 3, 203, 113), "randn"),
    OpCase((2, 2, 1, 130), "randn"),
    OpCase((2, 2, 65, 1), "randn"),
    OpCase((1, 1, 1, 1), "randn"),
    OpCase((2, 3, 257, 257), "large"),
    OpCase((2, 2, 257, 257), "huge"),
    OpCase((2, 2, 130, 203), "full_range"),
    OpCase((2, 2, 130, 203), "huge_channel"),
    OpCase((2, 2, 113, 203), "far_below"),
    OpCase((1, 1, 70, 4096), "equal"),
    OpCase((2, 2, 200, 200), "zero_q"),
    OpCase((2, 2, 200, 200), "uniform01"),
    OpCase((2, 2, 200, 200), "const_v"),
    OpCase((1, 2, 300, 600), "slopes"),
    OpCase((1, 2, 257, 700), "sink"),
)
GROUPS = (OpCase((2, 8, 113, 203, 2), "descales", "Q8 "), OpCase((1, 7, 33, 130, 1), "one_hot", "Q9 "))


def quick(problem: Problem) -> tuple[OpCase, ...]:
    """The quick cases, and those of what the problem has beside."""
    of = cast(SdpaFp8Problem, problem)
    return (
        *QUICK,
        *(cases.VIEWS if of.layout != "bhsd" else ()),
        *(GROUPS if of.grouped else ()),
        *(cases.LENGTHS if of.key_lengths else ()),
        *(cases.BLIND if of.corner == "bottom_right" else ()),
    )


def full(problem: Problem, tile: tuple[int, ...]) -> Iterator[OpCase]:
    """The matrix beside the quick cases; a long one where there is a mask; and lengths around the tile."""
    of = cast(SdpaFp8Problem, problem)
    yield from FULL
    if of.causal:
        yield OpCase(cases.LONG_CAUSAL, "randn")
    yield from cases.MORE_VIEWS if of.layout != "bhsd" else ()
    yield from cases.MORE_GROUPS if of.grouped else ()
    yield from cases.MORE_LENGTHS if of.key_lengths else ()
    for length in cases.tile_lengths(tile):
        yield OpCase((1, 2, length, length), "randn", "tile ")


CASES = cases.CASES._replace(quick=quick, full=full, beyond=frozenset({"large", "huge", "slopes"}))
