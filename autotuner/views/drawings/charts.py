"""Bars in rows, each with its name on the left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from autotuner.views.drawings.svg import Svg

WIDTH = 860.0
"""Pixels of a drawing over the whole page."""
BAR = 26
"""Pixels of a row."""
ROOM = 150
"""Pixels to the right of the longest bar, for what is written there."""


class Bar(NamedTuple):
    """A row: its name, the look and the length of its bar, and what is written behind."""

    name: str
    look: str
    length: float
    text: str
    title: str | None = None
    thin: tuple[str, float] | None = None
    """A second bar below the first."""
    mark: str | None = None
    """The kind of outcome whose mark stands before it."""
    href: str | None = None
    strong: bool = False


def bars(label: str, rows: Sequence[Bar], left: float = 190) -> Markup:
    """The longest bar has the whole room."""
    longest = [max(each.length, each.thin[1] if each.thin else 0.0) for each in rows]
    whole, room = max(longest, default=1.0) or 1.0, WIDTH - left - ROOM
    svg = Svg(WIDTH, BAR * max(1, len(rows)) + 8, label)
    for place, row in enumerate(rows):
        y = BAR * place + 6.0

        def draw(row: Bar = row, y: float = y, length: float = longest[place]) -> None:
            svg.text(
                left - (26 if row.mark else 10), y + 13, row.name, "label strong" if row.strong else "label", "end"
            )
            if row.mark:
                svg.mark(row.mark, left - 12, y + 9)
            size = {"width": room * row.length / whole, "height": 18 if row.thin is None else 10}
            svg.add("rect", x=left, y=y, **size, class_=row.look, title=row.title)
            if row.thin is not None:
                look, part = row.thin
                svg.add("rect", x=left, y=y + 11, width=max(1.0, room * part / whole), height=6, class_=look)
            svg.text(left + room * length / whole + 8, y + 13, row.text, "tick")

        svg.link(row.href, draw)
    return svg.render()
