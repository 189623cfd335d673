"""Problems by variants: what each of the fastest variants loses against the best of each problem."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import median_high
from typing import NamedTuple

from autotuner.views.drawings.charts import Cells
from autotuner.views.drawings.figure import Figure
from autotuner.views.drawings.links import Links
from autotuner.views.snapshot import Snapshot
from autotuner.views.table import Column, Table
from autotuner.views.words import micros, percent

COLUMNS = 16
"""Variants that the map has, beside the baseline."""
SHADES = (0.005, 0.02, 0.05, 0.1, 0.2, 0.4, 1.0)
"""Losses at which a cell's shade changes, relative."""


class TimesOn(NamedTuple):
    """A problem, and the microseconds of each variant on it by its trial's number; None: of the baseline."""

    problem: str
    us: Mapping[int | None, float]


def problems(snapshot: Snapshot, links: Links) -> Figure:
    """The map of losses. The best of a problem is the fastest of the shown variants and the baseline."""
    numbers = tuple(entry.number for entry in snapshot.board[:COLUMNS])
    times = snapshot.times(numbers)
    found = [_times(str(each), place, numbers, times) for place, each in enumerate(snapshot.record.problems)]
    shown = (None, *(number for number in numbers if any(number in each.us for each in found)))
    drawing = Cells.of("Loss of each variant on each problem", (len(shown), len(found)), 230, 52, (58, 34))
    for column, number in enumerate(shown):
        if number is None:
            drawing.column(column, snapshot.baseline, "label strong")
        else:
            drawing.column(column, f"#{number}", "label link", links.trial(snapshot.name, number))
    for row, each in enumerate(found):
        drawing.row(row, each.problem)
        best = min(each.us.values(), default=math.nan)
        for column, number in enumerate(shown):
            if number not in each.us:
                drawing.cell(column, row, None, None)
                continue
            loss, who = each.us[number] / best - 1, snapshot.baseline if number is None else f"trial {number}"
            title = f"{who} on {each.problem}: {micros(each.us[number])} us, {percent(loss, 1)} over the fastest"
            drawing.cell(column, row, sum(loss > edge for edge in SHADES), title, _words(loss))
    note = (
        "How much longer each variant takes than the fastest of the row, in %. A variant that wins everywhere is light"
        " from top to bottom; where columns trade places, several variants beat one."
    )
    table = Table.of([Column("problem", str), *(_column(each, snapshot.baseline) for each in shown)], found)
    drawn = drawing.svg.render() if len(shown) > 1 else None
    return Figure("problems", "Problems by variants", note, drawn, table, open=True)


def _times(
    problem: str, place: int, numbers: tuple[int, ...], times: Mapping[tuple[int, int], tuple[float, float]]
) -> TimesOn:
    """Each variant's time is taken as its ratio to the baseline of its own blocks: blocks of other hours differ."""
    of = {number: times[place, number] for number in numbers if (place, number) in times}
    if not of:
        return TimesOn(problem, {})
    base = median_high(us for _, us in of.values())
    return TimesOn(problem, {None: base, **{number: base * us / beside for number, (us, beside) in of.items()}})


def _column(number: int | None, baseline: str) -> Column[TimesOn]:
    key = "baseline_us" if number is None else f"trial_{number}_us"
    head = f"{baseline} us" if number is None else f"#{number} us"
    return Column(key, float, "of one forward", lambda e: e.us.get(number), head, micros, none="-")


def _words(loss: float) -> str:
    if loss == 0:
        return "best"
    return f"+{100 * loss:.1f}" if loss < 1 else f"\N{MULTIPLICATION SIGN}{loss + 1:.1f}"
