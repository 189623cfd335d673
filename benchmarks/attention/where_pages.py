"""docs/method/kernels-cuda.md: where each CUDA implementation of attention is the fastest one, in a chart over lengths
and heads, from the first points, which are drawn from kept results."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import NamedTuple

from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.spaces.first_points import read_first_points
from autotuner.values import config

COLOURS = {"mma": "#1f77b4", "wgmma": "#d62728", "decode": "#2ca02c", "wmma": "#9467bd", "scalar": "#8c564b"}
TORCH, GREY = "torch", "#777777"
FEW = 64
"""Queries, of fewer than the keys, up to which a problem counts as one of few queries."""
LEFT, TOP, WIDTH, HEIGHT, LINE = 64, 44, 122, 56, 10
"""Pixels: of the margins, of a doubling of the heads, of one of the keys, and of a line of text."""


class Won(NamedTuple):
    """A problem, and what is fastest there of all that was tried."""

    problem: SdpaProblem
    impl: str
    speedup: float
    tried: int

    @property
    def cell(self) -> tuple[int, int]:
        """Its place in the chart: doublings of batch times heads, and of the keys."""
        return round(math.log2(self.problem.batch * self.problem.heads)), round(math.log2(self.problem.seq_k))

    @property
    def words(self) -> str:
        """What the chart says of it."""
        few = f" {self.problem.seq_q}q" if self.problem.seq_q <= FEW < self.problem.seq_k else ""
        mask = " causal" if self.problem.causal else ""
        gain = f" {self.speedup:.2f}x" if self.impl != TORCH else ""
        return f"{self.impl}{gain} {self.problem.head_dim}{mask}{few}"


def winners() -> list[Won]:
    """Of each problem without window, cap, sinks and bias, the fastest implementation, in either type of 16 bits; torch
    where none of several beats it: where one alone was tried and is slower, nothing is known."""
    found: dict[SdpaProblem, dict[str, float]] = {}
    for impl, points in read_first_points(config.kernels_dir() / "sdpa", "cuda", "sdpa").items():
        for each in points:
            assert isinstance(each.problem, SdpaProblem)
            asks_more = each.problem.windowed or each.problem.softcapped
            if not asks_more and each.problem.sinks == each.problem.bias == "none":
                tried = found.setdefault(each.problem.model_copy(update={"dtype": "float16"}), {})
                tried[impl] = max(each.speedup, tried.get(impl, 0.0))
    won = [_won(problem, speedups) for problem, speedups in found.items()]
    return [each for each in won if each.impl != TORCH or each.tried > 1]


def _won(problem: SdpaProblem, speedups: dict[str, float]) -> Won:
    impl = max(speedups, key=lambda each: speedups[each])
    beaten = speedups[impl] <= 1
    return Won(problem, TORCH if beaten else impl, 1.0 if beaten else speedups[impl], len(speedups))


def figure() -> str:
    """The chart, as SVG."""
    won = sorted(winners(), key=lambda each: (each.cell, str(each.problem)))
    columns, rows = (range(min(of), max(of) + 1) for of in ([each.cell[axis] for each in won] for axis in (0, 1)))
    width, height = LEFT + WIDTH * len(columns) + 8, TOP + HEIGHT * len(rows) + 24
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif"'
        ' font-size="9">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        *_legend(),
        *_axes(columns, rows),
        *_labels(won, columns, rows),
        "</svg>",
    ]
    return "\n".join(drawn) + "\n"


def _legend() -> Iterator[str]:
    for place, (name, colour) in enumerate({**COLOURS, TORCH: GREY}.items()):
        yield _text(LEFT + 70 * place, 16, name, colour, "bold")
    yield _text(
        LEFT,
        32,
        "t_SDPA / t_variant, head dimension, mask; 1q: one query; heads and keys to the nearest power of two",
        "#333333",
    )


def _axes(columns: range, rows: range) -> Iterator[str]:
    right, bottom = LEFT + WIDTH * len(columns), TOP + HEIGHT * len(rows)
    for place in range(len(columns) + 1):
        x = LEFT + WIDTH * place
        yield f'<path d="M{x} {TOP}V{bottom}" stroke="#dddddd"/>'
    for place in range(len(rows) + 1):
        y = TOP + HEIGHT * place
        yield f'<path d="M{LEFT} {y}H{right}" stroke="#dddddd"/>'
    for place, exponent in enumerate(columns):
        yield _text(LEFT + WIDTH * place + 4, bottom + 14, f"{2**exponent} heads in all", "#333333")
    for place, exponent in enumerate(reversed(rows)):
        yield _text(4, TOP + HEIGHT * place + 14, f"{2**exponent} keys", "#333333")


def _labels(won: Sequence[Won], columns: range, rows: range) -> Iterator[str]:
    lines: dict[tuple[int, int], int] = {}
    for each in won:
        line = lines[each.cell] = lines.get(each.cell, 0) + 1
        x = LEFT + WIDTH * (each.cell[0] - columns.start) + 3
        y = TOP + HEIGHT * (rows.stop - 1 - each.cell[1]) + LINE * line
        yield _text(x, y, each.words, COLOURS.get(each.impl, GREY))


def _text(x: int, y: int, text: str, colour: str, weight: str = "normal") -> str:
    return f'<text x="{x}" y="{y}" fill="{colour}" font-weight="{weight}">{escape(text)}</text>'


def where(path: str) -> str:
    """The chart with what it says in a sentence. `path`: where it lies."""
    won = winners()
    firsts = [f"`{name}` at {count}" for name in COLOURS if (count := sum(each.impl == name for each in won))]
    torch = sum(each.impl == TORCH for each in won)
    alone = sum(each.tried == 1 for each in won)
    said = (
        f"Fastest of {len(won)} problems: {', '.join(firsts)}, torch at {torch}; {alone} have tried one implementation."
    )
    return f"![The fastest implementation]({path})\n\n{said} From `kernels/sdpa/first_points.toml`."
