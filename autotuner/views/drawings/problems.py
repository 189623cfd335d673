"""Problems by variants: what each of the fastest variants loses against the best of each problem."""

from __future__ import annotations

import math

from autotuner.views.drawings.figure import Figure
from autotuner.views.drawings.links import Links
from autotuner.views.drawings.svg import Svg
from autotuner.views.snapshot import Snapshot
from autotuner.views.table import Table
from autotuner.views.words import cut, micros, percent

COLUMNS = 16
"""Variants that the map has, beside the baseline."""
LEFT, TOP, CELL_W, CELL_H = 230, 52, 58, 34
SHADES = (0.005, 0.02, 0.05, 0.1, 0.2, 0.4, 1.0)
"""Losses at which a cell's shade changes, relative."""


def shade(loss: float) -> int:
    """0, the lightest, to 7, the darkest."""
    return sum(loss > edge for edge in SHADES)


def _words(loss: float) -> str:
    if loss == 0:
        return "best"
    return f"+{100 * loss:.1f}" if loss < 1 else f"\N{MULTIPLICATION SIGN}{loss + 1:.1f}"


def problems(snapshot: Snapshot, links: Links) -> Figure:
    """The map of losses. The best of a problem is the fastest of the shown variants and the baseline."""
    entries = snapshot.board[:COLUMNS]
    numbers = tuple(entry.number for entry in entries)
    of = snapshot.record.problems
    times = snapshot.times(numbers)
    columns = [number for number in numbers if any((place, number) in times for place in range(len(of)))]
    note = (
        "How much longer each variant takes than the fastest of the row, in %. A variant that wins everywhere is light"
        " from top to bottom; where columns trade places, several variants beat one."
    )
    svg = Svg(
        LEFT + CELL_W * (len(columns) + 1) + 10, TOP + CELL_H * len(of) + 10, "Loss of each variant on each problem"
    )
    for place, number in enumerate((None, *columns)):
        x = LEFT + CELL_W * (place + 0.5)
        if number is None:
            svg.text(x, TOP - 12, snapshot.baseline, "label strong", "middle")
        else:

            def head(x: float = x, number: int = number) -> None:
                svg.text(x, TOP - 12, f"#{number}", "label link", "middle")

            svg.link(links.trial(snapshot.name, number), head)
    rows = []
    for row, problem in enumerate(of):
        y = TOP + CELL_H * row
        found = {number: times.get((row, number)) for number in columns}
        base = [each[1] for each in found.values() if each is not None]
        us: dict[int | None, float] = {None: sorted(base)[len(base) // 2] if base else math.nan}
        # Each variant's time is taken as its ratio to the baseline of its own blocks: blocks of other hours differ.
        us |= {number: us[None] * each[0] / each[1] for number, each in found.items() if each is not None}
        best = min((each for each in us.values() if math.isfinite(each)), default=math.nan)
        text = str(problem)
        svg.text(
            LEFT - 10,
            y + CELL_H / 2 + 4,
            cut(text, 34),
            "label",
            "end",
        )
        for place, number in enumerate((None, *columns)):
            x = LEFT + CELL_W * place
            loss = us.get(number, math.nan) / best - 1
            if not math.isfinite(loss):
                svg.add("rect", x=x + 1, y=y + 1, width=CELL_W - 2, height=CELL_H - 2, class_="cell none")
                continue
            who = snapshot.baseline if number is None else f"trial {number}"
            title = f"{who} on {problem}: {micros(us[number])} us, {percent(loss, 1)} over the fastest"
            level = shade(loss)
            svg.add("rect", x=x + 1, y=y + 1, width=CELL_W - 2, height=CELL_H - 2, rx=2,
                    class_=f"cell heat-{level}", title=title)  # fmt: skip
            words = _words(loss)
            svg.text(x + CELL_W / 2, y + CELL_H / 2 + 4, words, f"cell-text on-{level}", "middle")
        rows.append(
            (
                text,
                micros(us[None]),
                *(micros(us.get(number)) for number in columns),
            )
        )
    names = ("problem", f"{snapshot.baseline} us", *(f"#{number} us" for number in columns))
    grid = Table.plain(names, tuple(rows), frozenset(range(1, len(names))))
    return Figure("problems", "Problems by variants", note, svg.render() if columns else None, grid)
