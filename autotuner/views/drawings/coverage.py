"""How much of its space a study has judged, value by value."""

from __future__ import annotations

from autotuner.tuning.covered import Coverage, Covered
from autotuner.views.drawings.figure import Figure
from autotuner.views.drawings.svg import Svg
from autotuner.views.figure_tables import coverage_table
from autotuner.views.words import cut

WIDTH, LEFT, CELL_W, CELL_H, ACROSS = 860, 190, 72, 40, 9
"""Pixels, and the most values in a row."""
SHADES = (0.1, 0.3, 0.6, 0.9, 1.2, 1.6, 2.2)
"""Over an even share of a parameter's judged variants: where a cell's shade changes."""


def coverage(found: Coverage) -> Figure:
    """A row a parameter and a cell a value. Parameters with one value are in the table alone."""
    exist = {name: values for name, values in found.parameters.items() if any(each.points for each in values)}
    drawn = {name: values for name, values in exist.items() if sum(each.points > 0 for each in values) > 1}
    lines = [
        (name, values[at : at + ACROSS], at) for name, values in drawn.items() for at in range(0, len(values), ACROSS)
    ]
    svg = Svg(WIDTH, CELL_H * max(1, len(lines)) + 8, "How often each value of each parameter was judged")
    for place, (name, values, at) in enumerate(lines):
        y = CELL_H * place + 4
        if not at:
            svg.text(LEFT - 12, y + CELL_H / 2 + 2, cut(name, 26), "label", "end")
        even = sum(each.judged for each in drawn[name]) / sum(each.points > 0 for each in drawn[name])
        for column, each in enumerate(values):
            _cell(svg, LEFT + CELL_W * column, y, name, each, even)
    table = coverage_table(found)
    note = (
        f"{table.notes[0]}. Below each value is how often it was judged. The shade compares that with an even share for"
        " each value of the parameter: outlined values were never judged."
    )
    return Figure("coverage", "What was tried", note, svg.render() if lines else None, table)


def _cell(svg: Svg, x: float, y: float, name: str, each: Covered, even: float) -> None:
    size = {"x": x + 1, "y": y + 1, "width": CELL_W - 2, "height": CELL_H - 4, "rx": 3}
    title = f"{name}={each.value}: {each.judged:,} judged, {each.right:,} right, of {each.points:,} points"
    level = sum(each.judged > edge * even for edge in SHADES)
    svg.add("rect", class_=f"cell heat-{level}" if each.judged else "cell none", title=title, **size)
    on = f"on-{level}" if each.judged else "blank"
    svg.text(x + CELL_W / 2, y + 16, cut(str(each.value), 9), f"cell-text strong {on}", "middle")
    svg.text(x + CELL_W / 2, y + 30, f"{each.judged:,}" if each.points else "no point", f"cell-text {on}", "middle")
