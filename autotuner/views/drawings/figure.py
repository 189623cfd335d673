"""A figure with its table: what a person who does not see the drawing, or wants the numbers, reads instead."""

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
