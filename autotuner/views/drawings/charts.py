"""What several drawings are made of: bars, dots in rows, and cells, each row with its name on the left."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from markupsafe import Markup

from autotuner.views.drawings.svg import Plot, Scale, Svg
from autotuner.views.words import cut

WIDTH = 860.0
"""Pixels of a drawing over the whole page."""
BAR, ROW = 26, 30
"""Pixels of a row with a bar, and of one with dots."""
ROOM = 150
"""Pixels to the right of the longest bar, for what is written there."""


class Bar(NamedTuple):
    """A row: its name, the parts of its bar with the look and the length of each, and what is written behind."""

    name: str
    parts: tuple[tuple[str, float], ...]
    text: str
    title: str | None = None
    thin: tuple[str, float] | None = None
    """A second bar below the first."""
    mark: str | None = None
    """The kind of outcome whose mark stands before it."""
    href: str | None = None
    strong: bool = False


def bars(
    label: str,
    rows: Sequence[Bar],
    left: float = 190,
    width: float = WIDTH,
    most: float | None = None,
    rule: tuple[float, str] | None = None,
) -> Markup:
    """`most`: the length of a whole bar, drawn behind each; None: that of the longest. `rule`: a line across all."""
    longest = [max(sum(length for _, length in each.parts), each.thin[1] if each.thin else 0.0) for each in rows]
    whole, room = most or max(longest, default=1.0) or 1.0, width - left - ROOM
    svg = Svg(width, BAR * max(1, len(rows)) + (30 if rule else 8), label)
    for place, row in enumerate(rows):
        y = BAR * place + 6.0

        def draw(row: Bar = row, y: float = y, length: float = longest[place]) -> None:
            svg.text(
                left - (26 if row.mark else 10), y + 13, row.name, "label strong" if row.strong else "label", "end"
            )
            if row.mark:
                svg.mark(row.mark, left - 12, y + 9)
            if most is not None:
                svg.add("rect", x=left, y=y, width=room, height=18, rx=3, class_="bar rest")
            at, height = left, 18 if row.thin is None else 10
            for look, part in row.parts:
                if part:
                    svg.add("rect", x=at, y=y, width=room * part / whole, height=height, class_=look, title=row.title)
                at += room * part / whole
            if row.thin is not None:
                look, part = row.thin
                svg.add("rect", x=left, y=y + 11, width=max(1.0, room * part / whole), height=6, class_=look)
            svg.text(left + room * (length if most is None else most) / whole + 8, y + 13, row.text, "tick")

        svg.link(row.href, draw)
    if rule is not None:
        x, bottom = left + room * rule[0] / whole, BAR * len(rows) + 6
        svg.line(x, 2, x, bottom, "rule strong")
        svg.text(x, bottom + 16, rule[1], "tick", "middle")
    return svg.render()


class Strips(NamedTuple):
    """Rows with an axis below them: the plot, and where each row's middle is."""

    plot: Plot
    middles: tuple[float, ...]

    @classmethod
    def of(
        cls,
        label: str,
        names: Sequence[str],
        reach: tuple[float, float],
        ticks: Iterable[tuple[float, str]] | str,
        left: float = 190,
        width: float = WIDTH,
        rule: float | None = None,
        below: str = "",
        shaded: Iterable[int] = (),
    ) -> Strips:
        """`names`: "" where another hand writes it. `ticks`: the places on the axis with their texts, or how each round
        place reads as `str.format` has it. `rule`: where a line goes down; `below`: the name of the axis; `shaded`:
        rows that are."""
        bottom = 8.0 + ROW * max(1, len(names))
        svg = Svg(width, bottom + (44 if below else 26), label)
        plot = Plot(svg, Scale(*reach, left, width - 24), Scale(0, 1, bottom, 6))
        x, middles = plot.x, tuple(6 + ROW * (place + 0.5) for place in range(len(names)))
        for row in shaded:
            svg.add("rect", x=0, y=middles[row] - ROW / 2, width=width, height=ROW, class_="tied")
        found = [(at, ticks.format(at)) for at in x.ticks(7)] if isinstance(ticks, str) else ticks
        for at, text in found:
            if x.holds(at):
                svg.line(x(at), 6, x(at), bottom, "grid")
                svg.text(x(at), bottom + 16, text, "tick", "middle")
        if rule is not None:
            svg.line(x(rule), 6, x(rule), bottom, "baseline")
        if below:
            svg.text((x.start + x.end) / 2, svg.height - 8, below, "name", "middle")
        for name, middle in zip(names, middles, strict=True):
            svg.text(left - 12, middle + 4, cut(name, 42), "label", "end")
        return cls(plot, middles)

    def dot(self, row: int, value: float, look: str, title: str, size: float = 4.0, lower: float = 0.0) -> None:
        """A mark on a row, so many pixels below its middle."""
        self.plot.svg.mark(look, self.plot.x(value), self.middles[row] + lower, size, title)

    def interval(self, row: int, low: float, high: float, look: str, lower: float = 0.0) -> None:
        """A line between two values; nothing where it has no end."""
        if low > 0 and high < float("inf"):
            y = self.middles[row] + lower
            self.plot.svg.line(self.plot.x(low), y, self.plot.x(high), y, look)


class Cells(NamedTuple):
    """A grid of cells below the names of its columns, beside those of its rows."""

    svg: Svg
    left: float
    top: float
    size: tuple[float, float]

    @classmethod
    def of(cls, label: str, count: tuple[int, int], left: float, top: float, size: tuple[float, float]) -> Cells:
        """An empty grid of so many columns and rows of cells of a size."""
        width, height = left + size[0] * count[0] + 10, top + size[1] * count[1] + 10
        return cls(Svg(width, height, label), left, top, size)

    def column(self, place: int, name: str, look: str = "tick", href: str | None = None) -> None:
        """The name of a column."""
        self.svg.link(
            href, lambda: self.svg.text(self.left + self.size[0] * (place + 0.5), self.top - 10, name, look, "middle")
        )

    def row(self, place: int, name: str) -> None:
        """The name of a row."""
        self.svg.text(self.left - 10, self.top + self.size[1] * (place + 0.5) + 4, cut(name, 34), "label", "end")

    def cell(self, column: int, row: int, level: int | None, title: str | None, *lines: str) -> None:
        """A cell, the lighter the smaller its level is, 0 to 7; None: outlined."""
        width, height = self.size
        x, y, look = self.left + width * column, self.top + height * row, "none" if level is None else f"heat-{level}"
        self.svg.add("rect", x=x + 1, y=y + 1, width=width - 2, height=height - 2, class_=f"cell {look}", title=title)
        on = "blank" if level is None else f"on-{level}"
        for place, line in enumerate(lines):
            down = height / 2 + 4 + 14 * (place - (len(lines) - 1) / 2)
            strong = " strong" if len(lines) > 1 and not place else ""
            self.svg.text(x + width / 2, y + down, line, f"cell-text{strong} {on}", "middle")
