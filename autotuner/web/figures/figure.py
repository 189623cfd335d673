"""A figure with its table: what a person who does not see the drawing, or wants the numbers, reads instead."""

from __future__ import annotations

from typing import NamedTuple

from markupsafe import Markup

Cell = str | Markup


class Link(NamedTuple):
    """A cell that leads somewhere; `href` None: there is no such page here."""

    text: str
    href: str | None


class Grid(NamedTuple):
    """A table. `right`: places of the columns with numbers."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell | Link, ...], ...]
    right: frozenset[int] = frozenset()


class Figure(NamedTuple):
    """A drawing, what it shows, and its table."""

    id: str
    title: str
    note: str
    svg: Markup | None
    grid: Grid
