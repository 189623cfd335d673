"""What a study has shown of its space: what matters, what interacts, what is left, and how far to trust that."""

from __future__ import annotations

from typing import NamedTuple

from autotuner.values.ratio import UNCONFIRMED
from autotuner.values.variant import Value
from autotuner.views import beliefs_text
from autotuner.views.beliefs import StudyBeliefs
from autotuner.views.drawings.charts import Bar, Cells, Strips, bars
from autotuner.views.drawings.figure import Figure, Lead, Part, Passage
from autotuner.views.drawings.svg import around
from autotuner.views.surrogate_beliefs import BeliefMap, Beliefs
from autotuner.views.table import Column, Table
from autotuner.views.words import percent, ratio

LEFT = 210


def believed(found: StudyBeliefs, newer: str = "") -> tuple[Part, ...]:
    """The drawings and the words. `newer`: what is said of variants that the beliefs do not know yet."""
    after = f"After {found.judged:,} judged variants of {found.points:,} valid points."
    words = Passage("in-words", "In words", tuple(beliefs_text.lines(found)))
    return Lead(f"{after} {newer}".rstrip()), *_figures(found.beliefs), words


def _figures(beliefs: Beliefs | None) -> tuple[Figure, ...]:
    """Nothing where too few trials were measured."""
    if beliefs is None:
        return ()
    drawn = [_shares(beliefs), _effects(beliefs), *([_map(beliefs.map)] if beliefs.map is not None else [])]
    note = "Converged: what is left is not expected to be told apart." if beliefs.converged else "Not converged."
    return (*drawn, Figure("promising", "What is left to find", note, None, beliefs_text.promising_table(beliefs)))


def _shares(beliefs: Beliefs) -> Figure:
    rows = []
    for name, share, fast, is_pair in beliefs_text.shares_of(beliefs):
        look, text = f"bar {'pair' if is_pair else 'measured'}", f"{percent(share, 1)} ({percent(fast, 1)})"
        rows.append(Bar(name, ((look, share),), text, thin=(f"{look} pale", fast)))
    drawing = bars("Shares of the variance that parameters explain", rows, LEFT)
    note = "The share of the believed speed's variance that each explains alone, and two together beyond each alone."
    note += " The thin bar: in the fastest quarter of the points."
    return Figure("matters", "What matters", note, drawing, beliefs_text.shares_table(beliefs))


def _effects(beliefs: Beliefs) -> Figure:
    parameters = beliefs_text.mattering(beliefs)
    reach = around([0.0, *(each.slower for parameter in parameters for each in parameter.values)])
    names = [f"{each.parameter}={each.values[0].value}" for each in parameters]
    drawing = Strips.of("How much slower each value is", names, (0, 100 * reach[1]), "+{:.4g} %", LEFT)
    for row, parameter in enumerate(parameters):
        drawing.interval(row, 1e-9, 100 * max(each.slower for each in parameter.values), "rule")
        for at, each in enumerate(parameter.values):
            title = f"{parameter.parameter}={each.value}: {percent(each.slower, 1)} slower than the best value"
            drawing.dot(row, 100 * each.slower, "raced_out" if at else "measured", title)
    note = "Each dot is a value: how much slower its points are in the mean than those of the best value, which is"
    table = beliefs_text.effects_table(beliefs)
    return Figure("effects", "What each value costs", f"{note} named.", drawing.plot.svg.render(), table)


class BelievedCell(NamedTuple):
    """A value of one parameter with one of another, where there is a valid point."""

    x: Value | None
    y: Value | None
    speedup: float
    judged: int
    rejected: int


def _map(found: BeliefMap) -> Figure:
    speeds = [each for row in found.speedup for each in row if each is not None]
    low, high = min(speeds), max(speeds)
    count, label = (len(found.x_values), len(found.y_values)), f"Believed speedup by {found.x} and {found.y}"
    drawing, rows = Cells.of(label, count, 120, 40, (min(90.0, 640 / max(1, count[0])), 34)), []
    drawing.svg.text(drawing.left, 14, f"{found.x} across, {found.y} down", "name")
    for column, value in enumerate(found.x_values):
        drawing.column(column, _named(value))
    for row, value in enumerate(found.y_values):
        drawing.row(row, _named(value))
        for column, speedup in enumerate(found.speedup[row]):
            judged, rejected = found.judged[row][column], found.rejected[row][column]
            if speedup is None:
                drawing.cell(column, row, None, None)
                continue
            level = 7 - round(7 * (speedup - low) / (high - low)) if high > low else 0
            title = f"{ratio(speedup)}; {judged} judged, {rejected} rejected"
            drawing.cell(column, row, level, title, f"{speedup:.2f}{'' if judged else ' ?'}")
            rows.append(BelievedCell(found.x_values[column], value, speedup, judged, rejected))
    columns: list[Column[BelievedCell]] = [
        Column(found.x, str, of=lambda e: e.x, head=found.x, reads=str, none="absent"),
        Column(found.y, str, of=lambda e: e.y, head=found.y, reads=str, none="absent"),
        Column("speedup", float, head=f"believed speedup, {UNCONFIRMED}", reads=ratio),
        Column("judged", int),
        Column("rejected", int),
    ]
    note = f"The believed speedup of the fastest point of each cell, {UNCONFIRMED}. A question mark: nothing there was"
    note += " judged yet."
    return Figure("map", "The two that matter most", note, drawing.svg.render(), Table.of(columns, rows))


def _named(value: object) -> str:
    return "absent" if value is None else str(value)
