"""How much of its space a study has judged, value by value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autotuner.tuning.covered import Coverage, Covered
from autotuner.web.figures.figure import Figure, Grid
from autotuner.web.figures.svg import Svg
from autotuner.web.words import cut, percent, ratio

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
    note = (
        f"{found.judged:,} of {found.points:,} valid points were judged ({percent(found.judged / found.points, 1)})."
        if found.points
        else "The space has no valid points."
    )
    note += " Below each value is how often it was judged. The shade compares that with an even share for each value of"
    note += " the parameter: outlined values were never judged."
    return Figure("coverage", "What was tried", note, svg.render() if lines else None, _grid(exist))


def _cell(svg: Svg, x: float, y: float, name: str, each: Covered, even: float) -> None:
    size = {"x": x + 1, "y": y + 1, "width": CELL_W - 2, "height": CELL_H - 4, "rx": 3}
    title = f"{name}={each.value}: {each.judged:,} judged, {each.right:,} right, of {each.points:,} points"
    level = sum(each.judged > edge * even for edge in SHADES)
    svg.add("rect", class_=f"cell heat-{level}" if each.judged else "cell none", title=title, **size)
    on = f"on-{level}" if each.judged else "blank"
    svg.text(x + CELL_W / 2, y + 16, cut(str(each.value), 9), f"cell-text strong {on}", "middle")
    svg.text(x + CELL_W / 2, y + 30, f"{each.judged:,}" if each.points else "no point", f"cell-text {on}", "middle")


def _grid(found: Mapping[str, Sequence[Covered]]) -> Grid:
    columns = ("parameter", "value", "valid points", "judged", "right", "best")
    rows = tuple(
        (name, str(each.value), f"{each.points:,}", f"{each.judged:,}", f"{each.right:,}", _best(each))
        for name, values in found.items()
        for each in values
    )
    return Grid(columns, rows, frozenset({2, 3, 4, 5}))


def _best(each: Covered) -> str:
    """As confirmed, or with a mark as the search has it."""
    mark = "" if each.best_confirmed or each.best_speedup is None else "~"
    return f"{mark}{ratio(each.best_speedup)}"
