"""Points of a space, by what they are."""

from __future__ import annotations

from autotuner.spaces.space import Space
from autotuner.values.variant import Value


def first_of(space: Space, impl: str) -> int:
    """The point of an implementation that is nearest to the default point."""
    wanted: dict[str, Value] = {**space.file.default, "IMPL": impl}
    row = space.row_of(wanted)
    column = space.parameters.index("IMPL")
    mine = space.rows[:, column] == row[column]
    return space.nearest(row, exclude=~mine)
