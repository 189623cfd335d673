"""Of docs/method/kernels-cuda.md what `autotuner profile --json` has kept; benchmarks/pages.py writes it."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

import autotuner.ops  # noqa: F401  # problems are read by their ops
from autotuner.values.profile import Profile
from autotuner.views.profile_table import CounterRow, holds_back, number, rows, where

KEPT = ("profile_small", "profile_large", "profile_decode")
"""Names of files in docs/results."""
COLOURS = ("#1f77b4", "#999999")
"""Of a variant and of its baseline."""
LABEL, PANEL, CELL, LINE, TOP = 160, 250, 110, 17, 52
"""Pixels: the names of the counters, a problem and one of its sides, the height of a row, and where the first is."""


def counted(documents: list[dict[str, Any]], path: str) -> str:
    """The figure, and what holds each variant back. `path`: where the figure lies."""
    found = [Profile.model_validate(each) for each in documents]
    if not found:
        return "Not kept yet."
    said = [f"- {each.problem}: `{each.parameters['IMPL']}`. {holds_back(each)}{_acts(each)}" for each in found]
    around = (f"{where(each)}, {each.variant.tool}, {each.counted_at:%Y-%m-%d}" for each in found)
    made = f"Made by `autotuner profile --json`: {'; '.join(dict.fromkeys(around))}."
    return "\n\n".join([f"![Counters of winners beside a baseline]({path})", "\n".join(said), made])


def _acts(found: Profile) -> str:
    return f" Its time depends most on {', '.join(found.acts)}." if found.acts else ""


def figure(documents: list[dict[str, Any]]) -> str:
    """What `autotuner profile` prints, a problem beside the other, as SVG; shares of a peak are bars, too."""
    found = [Profile.model_validate(each) for each in documents]
    columns = [{row.what: row for row in [_raced(each), *rows(each)]} for each in found]
    names = list(dict.fromkeys(name for column in columns for name in column))
    width, height = LABEL + PANEL * len(found), TOP + LINE * len(names)
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif"'
        ' font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        *(_text(4, TOP + LINE * place, name) for place, name in enumerate(names)),
        *(part for place, each in enumerate(found) for part in _head(each, LABEL + PANEL * place)),
        *(
            part
            for across, column in enumerate(columns)
            for down, name in enumerate(names)
            if name in column
            for part in _cells(column[name], LABEL + PANEL * across, TOP + LINE * down)
        ),
        "</svg>",
    ]
    return "\n".join(drawn) + "\n"


def _raced(found: Profile) -> CounterRow:
    """What the search has timed, without a profiler."""
    return CounterRow("timed, us", *found.us)


def _head(found: Profile, x: int) -> Iterator[str]:
    yield _text(x, 14, str(found.problem))
    for place, name in enumerate((found.parameters["IMPL"], found.baseline)):
        yield _text(x + CELL * place, 31, str(name), COLOURS[place])


def _cells(row: CounterRow, x: int, y: int) -> Iterator[str]:
    for place, value in enumerate((row.variant, row.baseline)):
        left = x + CELL * place
        if "%" in row.what and isinstance(value, int | float):
            yield f'<rect x="{left + 40}" y="{y - 9}" width="{0.6 * value:.1f}" height="9" fill="{COLOURS[place]}"/>'
        yield _text(left, y, "-" if value is None else number(value))


def _text(x: int, y: int, text: str, colour: str = "#333333") -> str:
    return f'<text x="{x}" y="{y}" fill="{colour}">{escape(text)}</text>'
