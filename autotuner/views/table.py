"""The look that all tables share, and the signs of what stands in them: each has a sign beside its colour."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table
from rich.text import Text

from autotuner.views.points import Point, compared

WIDE = 110
"""Characters of a line from which a table has room for all of its columns; 80 have to do for those that matter."""

WINNER, TIE, ESTIMATE, REJECT, OURS = "*", "=", "~", "x", "!"
"""The signs: crowned; ties for the lead; an estimate from few blocks; rejected or revoked; says nothing of the
variant."""
STYLES = {WINNER: "bold green", TIE: "green", ESTIMATE: "yellow", REJECT: "red", OURS: "magenta"}


class Fitted:
    """A view that is made for the width at which it is shown."""

    def __init__(self, made: Callable[[int], RenderableType]) -> None:
        self._made = made

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        yield self._made(options.max_width)


def new_table(*columns: str, right: tuple[int, ...] = ()) -> Table:
    """An empty table with these columns; `right` are the places of those that are set to the right."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
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


POINTS = "parameters"
"""The head of the column with such cells."""
