"""Tables as a terminal prints them: each kind of row has a sign beside its colour."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import cast

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.table import Table as Lines
from rich.text import Text

from autotuner.views import table
from autotuner.views.points import Point, compared
from autotuner.views.words import ESTIMATE, OURS, POINTS, REJECT, TIE, WINNER

WIDE = 110
"""Characters of a line from which a table has room for all of its columns; 80 have to do for those that matter."""

STYLES = {WINNER: "bold green", TIE: "green", ESTIMATE: "yellow", REJECT: "red", OURS: "magenta"}


class Fitted:
    """A view that is made for the width at which it is shown."""

    def __init__(self, made: Callable[[int], RenderableType]) -> None:
        self._made = made

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        yield self._made(options.max_width)


def printed(found: table.Table) -> RenderableType:
    """A table and its notes. Of points only what tells them apart stands in the rows, and what all share above."""
    places = [place for place, column in enumerate(found.columns) if column.key == POINTS]
    above: list[Text] = []
    differing: dict[int, tuple[str, ...]] = {}
    for place in places:
        above, differing[place] = beside([cast(Point, row.cells[place].value) for row in found.rows])

    def made(width: int) -> RenderableType:
        shown = [place for place, column in enumerate(found.columns) if width >= WIDE or not column.wide]
        right = tuple(at for at, place in enumerate(shown) if found.columns[place].right)
        lines = new_table(*(found.columns[place].text for place in shown), right=right)
        for number, row in enumerate(found.rows):
            cells = (differing[at][number] if at in differing else row.cells[at].text for at in shown)
            lines.add_row(*cells, style=STYLES.get(row.sign, ""))
        return lines

    return Group(*above, Fitted(made), *map(note, found.notes))


def new_table(*columns: str, right: tuple[int, ...] = ()) -> Lines:
    """An empty table with these columns; `right` are the places of those that are set to the right."""
    made = Lines(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for index, name in enumerate(columns):
        made.add_column(name, justify="right" if index in right else "left", overflow="fold")
    return made


def note(text: str) -> Text:
    """A line above or below a table: it breaks between words, also where other lines are left whole."""
    return Text(text, no_wrap=False, overflow="fold")


def beside(points: Sequence[Point]) -> tuple[list[Text], tuple[str, ...]]:
    """Points for a table: the line above it with what all share, and the cell of each."""
    shared, cells = compared(points)
    if len(cells) < 2:
        return [], cells
    head = f"All have {shared}. " if shared else ""
    return [note(f"{head}The first row has the other parameters, each row below what differs from it.")], cells
