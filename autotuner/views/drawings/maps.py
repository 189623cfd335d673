"""Maps of cells: how much of its space a study has judged, value by value; and problems by variants, what each of the
fastest variants loses against the best of each problem."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import median_high
from typing import NamedTuple

from autotuner.tuning.covered import Coverage
from autotuner.views.drawings.charts import Cells
from autotuner.views.drawings.figure import Figure
from autotuner.views.drawings.links import Links
from autotuner.views.figure_tables import coverage_table
from autotuner.views.snapshot import Snapshot
from autotuner.views.table import Column, Table
from autotuner.views.words import cut, micros, percent

ACROSS = 9
"""The most values in a row."""
SHARES = (0.1, 0.3, 0.6, 0.9, 1.2, 1.6, 2.2)
"""Over an even share of a parameter's judged variants: where a cell's shade changes."""


def coverage(found: Coverage) -> Figure:
    """A row a parameter and a cell a value. Parameters with one value are in the table alone."""
    exist = {name: values for name, values in found.parameters.items() if any(each.points for each in values)}
    drawn = {name: values for name, values in exist.items() if sum(each.points > 0 for each in values) > 1}
    lines = [
        (name, values[at : at + ACROSS], at) for name, values in drawn.items() for at in range(0, len(values), ACROSS)
    ]
    label = "How often each value of each parameter was judged"
    drawing = Cells.of(label, (ACROSS, max(1, len(lines))), 190, 4, (72, 40))
    for row, (name, values, at) in enumerate(lines):
        if not at:
            drawing.row(row, cut(name, 26))
        even = sum(each.judged for each in drawn[name]) / sum(each.points > 0 for each in drawn[name])
        for column, each in enumerate(values):
            title = f"{name}={each.value}: {each.judged:,} judged, {each.right:,} right, of {each.points:,} points"
            level = sum(each.judged > edge * even for edge in SHARES) if each.judged else None
            count = f"{each.judged:,}" if each.points else "no point"
            drawing.cell(column, row, level, title, cut(str(each.value), 9), count)
    table = coverage_table(found)
    note = (
        f"{table.notes[0]}. Below each value is how often it was judged. The shade compares that with an even share for"
        " each value of the parameter: outlined values were never judged."
    )
    return Figure("coverage", "What was tried", note, drawing.svg.render() if lines else None, table)


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
