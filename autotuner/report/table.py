"""The look that all tables share."""

from __future__ import annotations

from rich import box
from rich.table import Table


def new_table(*columns: str, right: tuple[int, ...] = ()) -> Table:
    """An empty table with these columns; `right` are the places of those that are set to the right."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for index, name in enumerate(columns):
        made.add_column(name, justify="right" if index in right else "left", overflow="fold")
    return made
