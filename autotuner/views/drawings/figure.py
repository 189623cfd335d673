"""What a page shows: a figure with its table, which a person reads who does not see the drawing or wants the numbers; a
table on its own; and sentences."""

from __future__ import annotations

from typing import NamedTuple

from markupsafe import Markup

from autotuner.views.table import Table


class Figure(NamedTuple):
    """A drawing, what it shows, and its table."""

    id: str
    title: str
    note: str
    svg: Markup | None
    table: Table
    key: tuple[str, ...] = ()
    """The kinds of outcomes, or the stages, whose looks are told above it."""
    open: bool = False
    """Whether the table is shown at once."""


class Panel(NamedTuple):
    """A table under a title."""

    title: str
    table: Table
    steps: tuple[tuple[str, str | None, bool], ...] = ()
    """What leads to another drawing of the page: its text, its address, and whether it is the one that is shown."""


class Passage(NamedTuple):
    """Lines for a person; one that begins with blanks belongs to the one above that does not."""

    id: str
    title: str
    lines: tuple[str, ...]
    number: int | None = None
    """The trial that they are about, which has a page."""
    steps: tuple[tuple[str, str | None, bool], ...] = ()


class Lead(NamedTuple):
    """A sentence."""

    text: str


Part = Figure | Panel | Passage | Lead
