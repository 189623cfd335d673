"""A search space as a person reads it, and as JSON: its parameters, its constraints and what reaches the program."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from autotuner.values.variant import Value
from autotuner.views.table import Column, Table, data
from autotuner.views.terminal import printed

if TYPE_CHECKING:  # numpy takes longer to import than a table to print
    from autotuner.spaces.dead_parameters import Knob
    from autotuner.spaces.space import Space


def space_tables(space: Space) -> dict[str, Table]:
    """What a space is made of, by what programs call it."""
    file = space.file
    constraints = [
        {**constraint.model_dump(mode="json"), "removed": removed, "alone": alone}
        for constraint, removed, alone in zip(file.constraints, space.removed, space.alone, strict=True)
    ]
    parameters = [(name, each, space.default.get(name)) for name, each in file.parameters.items()]
    derived = [(name, file.derived[name], *ends) for name, ends in space.derived_ranges.items()]
    return {
        "parameters": Table.of(PARAMETERS, parameters),
        "derived": Table.of(DERIVED, derived),
        "amounts": Table.of(AMOUNTS, file.amounts.items()),
        "constraints": Table.of(CONSTRAINTS, constraints),
    }


PARAMETERS: list[Column[Any]] = [
    Column("parameter", str, of=lambda e: e[0]),
    Column("values", list[Value], of=lambda e: e[1].values, reads=lambda values: ", ".join(map(str, values))),
    Column("when", str, of=lambda e: e[1].when, head="exists when"),
    Column("default", Value, of=lambda e: e[2], reads=str),
]
DERIVED: list[Column[Any]] = [
    Column("name", str, of=lambda e: e[0], head="derived"),
    Column("expression", str, of=lambda e: e[1]),
    Column("least", float, of=lambda e: e[2], reads=lambda amount: f"{amount:,.4g}"),
    Column("greatest", float, of=lambda e: e[3], reads=lambda amount: f"{amount:,.4g}"),
]
AMOUNTS: list[Column[Any]] = [
    Column("name", str, of=lambda e: e[0], head="amount"),
    Column("expression", str, of=lambda e: e[1]),
]
CONSTRAINTS: list[Column[Any]] = [
    Column("removed", int, of=itemgetter("removed")),
    Column("alone", int, of=itemgetter("alone"), none="?"),
    Column(
        "place",
        str,
        of=itemgetter("place"),
        head="of",
        reads=lambda place: place.partition(".constraints")[0] or "space file",
    ),
    Column("expression", str, of=itemgetter("expression"), head="constraint"),
    Column("reason", str, of=itemgetter("reason")),
    data("limit_of", list[str], of=itemgetter("limit_of")),
]


def space_document(space: Space) -> dict[str, Any]:
    """A space as JSON-ready data."""
    file = space.file
    return {
        "name": space.name,
        "title": file.title,
        "family": file.family,
        "backend": file.backend,
        "problems": [problem.model_dump(mode="json") for problem in file.problems],
        **{name: table.json() for name, table in space_tables(space).items()},
        "raw_points": space.raw_count,
        "valid_points": len(space),
        "expected_latency": {"steps": dict(file.expected_latency), "spread": space.expected_spread},
        "default": space.default,
        "why_another_default": space.why_another_default,
        "facts": space.facts,
        "digest": space.digest,
    }


def space_shown(space: Space) -> RenderableType:
    """Parameters, counts, and how many points each constraint removes."""
    head = f"{space.name}: {space.file.title}\n" + "\n".join(map(str, space.file.problems))
    counts = f"{space.raw_count:,} raw points, {len(space):,} valid here ({len(space) / space.raw_count:.1%})"
    if space.expected_spread is not None:
        counts += f"; expected to differ by {space.expected_spread:.3g}x from the fastest to the slowest"
    notes = [Text(space.why_another_default)] if space.why_another_default else []
    return Group(
        Text(head), *(printed(each) for each in space_tables(space).values() if each.rows), Text(counts), *notes
    )


def cage_lines(missing: Sequence[str]) -> list[str]:
    """What the cage around variants lacks here (docs/method/isolation.md)."""
    if not missing:
        return ["The cage around variants is whole on this machine."]
    return [f"The cage around variants lacks a wall here: {each}." for each in missing]


def knobs_table(knobs: Sequence[Knob]) -> Table:
    """Each knob of a space: whether it reaches the program."""
    bad = sum(knob.state in ("dead", "same values") for knob in knobs)
    count = len(knobs)
    note = f"{bad} of {count} parameters do not reach the program." if bad else f"{count} parameters, none dead."
    return Table.of(KNOBS, knobs, [note])


KNOBS: list[Column[Knob]] = [
    Column("impl", str, head="IMPL"),
    Column("parameter", str),
    Column("state", str, look=lambda knob: {"alive": "good", "untested": "warn"}.get(knob.state, "bad")),
    Column("detail", str, head="found"),
]
