"""Tables as a terminal prints them: each kind of row has a sign beside its colour."""

from collections.abc import Mapping, Sequence
from typing import cast

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table as Lines
from rich.text import Text

from autotuner.views import table
from autotuner.views.words import ESTIMATE, OURS, POINTS, REJECT, TIE, WINNER, Point, compared

WIDE = 110
"""Characters of a line from which a table has room for all of its columns; 80 have to do for those that matter."""

STYLES = {WINNER: "bold green", TIE: "green", ESTIMATE: "yellow", REJECT: "red", OURS: "magenta"}
"""Of the signs of rows."""
LOOKS = {"bad": "red", "warn": "yellow"}
"""Of the colours of chips."""


def printed(found: table.Table, width: int) -> RenderableType:
    """A table and its notes in lines of that width. Of points only what tells them apart stands in the rows, and what
    all share above."""
    every = found.shown("table", "wide")
    above: list[Text] = []
    for place in [place for place, column in enumerate(every.columns) if column.key == POINTS]:
        known = [at for at, row in enumerate(every.rows) if isinstance(row.cells[place].value, Mapping)]
        above, texts = beside([cast(Point, every.rows[at].cells[place].value) for at in known])
        every = _with_texts(every, place, dict(zip(known, texts, strict=True)))
    fits = every if width >= WIDE else every.shown("table")
    lines = Lines(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for column in fits.columns:
        lines.add_column(column.title, justify="right" if column.is_right else "left", overflow="fold")
    for row in fits.rows:
        cells = (Text(cell.text, style=LOOKS.get(cell.look or "", "")) for cell in row.cells)
        lines.add_row(*cells, style=STYLES.get(row.sign, ""))
    return Group(*map(note, found.above), *above, *([lines] if found.rows else []), *map(note, found.notes))


def printed_in_full(found: table.Table) -> RenderableType:
    """Each row as some lines: its title, and a line for each column that is not empty."""
    told, lines = found.shown("full"), list[str]()
    width = max((len(column.title) for column in told.columns), default=0)
    for row in told.rows:
        cells = zip(told.columns, row.cells, strict=True)
        lines += [row.title, *(f"  {column.title:{width}} {cell.text}" for column, cell in cells if cell.text)]
    return Text("\n".join([*lines, *found.notes]))


def _with_texts(found: table.Table, place: int, texts: Mapping[int, str]) -> table.Table:
    """The table with other texts in a column, by row."""

    def changed(at: int, row: table.Row) -> table.Row:
        cell = row.cells[place]._replace(text=texts.get(at, row.cells[place].text))
        return row._replace(cells=(*row.cells[:place], cell, *row.cells[place + 1 :]))

    return found._replace(rows=tuple(changed(at, row) for at, row in enumerate(found.rows)))


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
