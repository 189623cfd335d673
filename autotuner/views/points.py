"""Several points beside each other: what all have in common once, and of each what differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from autotuner.values.variant import Value
from autotuner.views.words import point as words

Point = Mapping[str, Value]


class Compared(NamedTuple):
    """Points in words."""

    shared: str
    """What all of them have; "" where that is nothing, or there are fewer than two."""
    rows: tuple[str, ...]
    """Of the first the rest, of the others where they differ from the first."""


def compared(points: Sequence[Point]) -> Compared:
    """The points in words, those of the first one first."""
    if len(points) < 2:
        return Compared("", tuple(words(point) for point in points))
    first, *others = points
    shared = {name for name, value in first.items() if all(name in p and p[name] == value for p in others)}
    rest = {name: value for name, value in first.items() if name not in shared}
    rows = (words(rest), *(_difference(rest, {k: v for k, v in p.items() if k not in shared}) for p in others))
    return Compared(words({name: first[name] for name in first if name in shared}), rows)


def _difference(first: Point, other: Point) -> str:
    """What `other` has that the first has not, and the names of what only the first has."""
    new = words({name: value for name, value in other.items() if name not in first or first[name] != value})
    gone = [f"no {name}" for name in first if name not in other]
    return " ".join([*([new] if new else []), *gone]) or "as the first"
