"""What a study has shown of its space: what matters, what interacts, what is left, and how far to trust that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from autotuner.views import beliefs_text
from autotuner.views.beliefs import StudyBeliefs
from autotuner.views.drawings.figure import Figure
from autotuner.views.drawings.svg import Plot, Svg, around
from autotuner.views.surrogate_beliefs import BeliefMap, Beliefs
from autotuner.views.table import Table
from autotuner.views.words import percent, ratio

WIDTH, ROW, LEFT = 860, 26, 210


class BeliefsPage(NamedTuple):
    """What the page shows."""

    judged: int
    points: int
    figures: tuple[Figure, ...]
    lines: Sequence[str]


def page(found: StudyBeliefs) -> BeliefsPage:
    """The drawings and the words."""
    return BeliefsPage(found.judged, found.points, figures(found), beliefs_text.lines(found))


def figures(found: StudyBeliefs) -> tuple[Figure, ...]:
    """Nothing where too few trials were measured."""
    beliefs = found.beliefs
    if beliefs is None:
        return ()
    drawn = [_shares(beliefs), _effects(beliefs), *([_map(beliefs.map)] if beliefs.map is not None else [])]
    note = "Converged: what is left is not expected to be told apart." if beliefs.converged else "Not converged."
    left = Figure("promising", "What is left to find", note, None, beliefs_text.promising_table(beliefs))
    return (*drawn, left)


def _shares(beliefs: Beliefs) -> Figure:
    shown = beliefs_text.shares_of(beliefs)
    svg = Svg(WIDTH, ROW * max(1, len(shown)) + 8, "Shares of the variance that parameters explain")
    most = max((each.most for each in shown), default=1.0)
    length = WIDTH - LEFT - 150
    for place, (name, share, fast, is_pair) in enumerate(shown):
        look = "pair" if is_pair else "measured"
        y = ROW * place + 4
        svg.text(LEFT - 8, y + 14, name, "label", "end")
        svg.add("rect", x=LEFT, y=y, width=max(1.0, length * share / most), height=10, rx=2, class_=f"bar {look}")
        svg.add(
            "rect", x=LEFT, y=y + 11, width=max(1.0, length * fast / most), height=6, rx=2, class_=f"bar {look} pale"
        )
        at = LEFT + length * max(share, fast) / most + 8
        svg.text(at, y + 14, f"{percent(share, 1)} ({percent(fast, 1)})", "tick")
    note = "The share of the believed speed's variance that each explains alone, and two together beyond each alone."
    note += " The thin bar: in the fastest quarter of the points."
    return Figure("matters", "What matters", note, svg.render(), beliefs_text.shares_table(beliefs))


def _effects(beliefs: Beliefs) -> Figure:
    parameters = beliefs_text.mattering(beliefs)
    values = [each.slower for parameter in parameters for each in parameter.values]
    reach = around([0.0, *values])
    height = ROW * max(1, len(parameters)) + 50
    plot = Plot.of((WIDTH, height), "How much slower each value is", (0, reach[1]), (0, 1), (6, 30, 44, LEFT))
    svg, x = plot.svg, plot.x
    bottom = 8 + ROW * len(parameters)
    for tick in x.ticks(7):
        svg.line(x(tick), 6, x(tick), bottom, "grid")
        svg.text(x(tick), bottom + 16, f"+{100 * tick:.4g} %", "tick", "middle")
    for place, parameter in enumerate(parameters):
        y = ROW * place + 18
        svg.text(LEFT - 12, y + 4, f"{parameter.parameter}={parameter.values[0].value}", "label", "end")
        svg.line(x(0), y, x(max(each.slower for each in parameter.values)), y)
        for at, each in enumerate(parameter.values):
            title = f"{parameter.parameter}={each.value}: {percent(each.slower, 1)} slower than the best value"
            svg.add("circle", cx=x(each.slower), cy=y, r=4, class_=f"mark {'measured' if at == 0 else 'raced_out'}",
                    title=title)  # fmt: skip
    note = (
        "Each dot is a value: how much slower its points are in the mean than those of the best value, which is named."
    )
    return Figure("effects", "What each value costs", note, svg.render(), beliefs_text.effects_table(beliefs))


def _map(found: BeliefMap) -> Figure:
    cell_w, cell_h, left, top = min(90.0, 640 / max(1, len(found.x_values))), 34.0, 120.0, 40.0
    speeds = [each for row in found.speedup for each in row if each is not None]
    low, high = min(speeds), max(speeds)
    svg = Svg(left + cell_w * len(found.x_values) + 16, top + cell_h * len(found.y_values) + 16,
              f"Believed speedup by {found.x} and {found.y}")  # fmt: skip
    svg.text(left, 14, f"{found.x} across, {found.y} down", "name")
    for column, value in enumerate(found.x_values):
        svg.text(left + cell_w * (column + 0.5), top - 8, _named(value), "tick", "middle")
    rows = []
    for row, value in enumerate(found.y_values):
        y = top + cell_h * row
        svg.text(left - 8, y + cell_h / 2 + 4, _named(value), "tick", "end")
        for column, speedup in enumerate(found.speedup[row]):
            x = left + cell_w * column
            judged, rejected = found.judged[row][column], found.rejected[row][column]
            if speedup is None:
                svg.add("rect", x=x + 1, y=y + 1, width=cell_w - 2, height=cell_h - 2, class_="cell none")
                continue
            level = 7 - round(7 * (speedup - low) / (high - low)) if high > low else 0
            svg.add("rect", x=x + 1, y=y + 1, width=cell_w - 2, height=cell_h - 2, rx=2, class_=f"cell heat-{level}",
                    title=f"{ratio(speedup)}; {judged} judged, {rejected} rejected")  # fmt: skip
            svg.text(x + cell_w / 2, y + cell_h / 2 + 4, f"{speedup:.2f}{'' if judged else ' ?'}",
                     f"cell-text on-{level}", "middle")  # fmt: skip
            rows.append((_named(found.x_values[column]), _named(value), ratio(speedup), str(judged), str(rejected)))
    grid = Table.plain((found.x, found.y, "believed speedup", "judged", "rejected"), tuple(rows), frozenset({2, 3, 4}))
    note = "The believed speedup of the fastest point of each cell. A question mark: nothing there was judged yet."
    return Figure("map", "The two that matter most", note, svg.render(), grid)


def _named(value: object) -> str:
    return "absent" if value is None else str(value)
