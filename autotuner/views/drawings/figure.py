"""What a page shows: a figure with its table, which a person reads who does not see the drawing or wants the numbers; a
table on its own; and sentences."""

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
    open: bool = False
    """Whether the table is shown at once."""
    narrow: Markup | None = None
    """The drawing for narrow screens, where it is another one."""


class Panel(NamedTuple):
    """A table under a title."""

    title: str
    table: Table


class Passage(NamedTuple):
    """Lines for a person; one that begins with blanks belongs to the one above that does not."""

    id: str
    title: str
    lines: tuple[str, ...]
    number: int | None = None
    """The trial that they are about, which has a page."""


class Lead(NamedTuple):
    """A sentence."""

    text: str


Part = Figure | Panel | Passage | Lead
