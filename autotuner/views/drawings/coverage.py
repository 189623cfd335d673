"""How much of its space a study has judged, value by value."""

from __future__ import annotations

from autotuner.tuning.covered import Coverage
from autotuner.views.drawings.charts import Cells
from autotuner.views.drawings.figure import Figure
from autotuner.views.figure_tables import coverage_table
from autotuner.views.words import cut

ACROSS = 9
"""The most values in a row."""
SHADES = (0.1, 0.3, 0.6, 0.9, 1.2, 1.6, 2.2)
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
            level = sum(each.judged > edge * even for edge in SHADES) if each.judged else None
            count = f"{each.judged:,}" if each.points else "no point"
            drawing.cell(column, row, level, title, cut(str(each.value), 9), count)
    table = coverage_table(found)
    note = (
        f"{table.notes[0]}. Below each value is how often it was judged. The shade compares that with an even share for"
        " each value of the parameter: outlined values were never judged."
    )
    return Figure("coverage", "What was tried", note, drawing.svg.render() if lines else None, table)
