"""Known points: what another study has measured, as a new study keeps it from its start."""

from __future__ import annotations

from pydantic import Field

from autotuner.values.model import Model

KNOWN_POINTS = "autotuner:known_points"
"""The attribute of a study that holds its known points: a study that goes on has those that it began with."""

HINTS = "autotuner:first_points"
"""The attribute of a study that holds its first points: places, and the objectives that were measured elsewhere."""


class KnownPoints(Model):
    """Points that another study has judged and that are valid in this one's space."""

    study: str
    points: tuple[int, ...] = Field(description="their places in the space of the new study")
    objectives: tuple[float | None, ...] = Field(description="ln(t_variant / t_baseline) there; None for a reject")
    derived: tuple[tuple[float | None, ...], ...] = Field(
        default=(),
        description="the derived quantities of each point there, in doublings, in the order of its branch; none "
        "where they are not known",
    )
    expected: tuple[float | None, ...] = Field(
        default=(),
        description="the logarithm of the latency that the space file expects of each point there; none where it "
        "is not known",
    )

    def of_range(self, first: int, end: int) -> KnownPoints:
        """Those of the points from `first` to before `end`, counted from `first`."""
        mine = [index for index, point in enumerate(self.points) if first <= point < end]
        return KnownPoints(
            study=self.study,
            points=tuple(self.points[index] - first for index in mine),
            objectives=tuple(self.objectives[index] for index in mine),
            derived=tuple(self.derived[index] for index in mine) if self.derived else (),
            expected=tuple(self.expected[index] for index in mine) if self.expected else (),
        )
