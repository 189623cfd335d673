"""What of a study was reproduced, for a person."""

from __future__ import annotations

from collections.abc import Sequence

from autotuner.tuning.reproduced import Level
from autotuner.views.table import Column, Table

COLUMNS: list[Column[Level]] = [Column("level", str), Column("found", str), Column("detail", str)]


def reproduced_table(levels: Sequence[Level]) -> Table:
    """A row a level."""
    return Table.of(COLUMNS, levels)
