"""A search space as a person reads it, and as JSON: its parameters, its constraints and what reaches the program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from autotuner.values.model import json_of
from autotuner.views.terminal import new_table

if TYPE_CHECKING:  # numpy takes longer to import than a table to print
    from autotuner.spaces.dead_parameters import Knob
    from autotuner.spaces.space import Space


def space_document(space: Space) -> dict[str, Any]:
    """A space as JSON-ready data."""
    file = space.file
    return {
        "name": space.name,
        "title": file.title,
        "family": file.family,
        "backend": file.backend,
        "problems": [problem.model_dump(mode="json") for problem in file.problems],
        "parameters": {
            name: {"values": list(parameter.values), "when": parameter.when}
            for name, parameter in file.parameters.items()
        },
        "raw_points": space.raw_count,
        "valid_points": len(space),
        "amounts": dict(file.amounts),
        "constraints": [
            {**constraint.model_dump(mode="json"), "removed": removed, "alone": alone}
            for constraint, removed, alone in zip(file.constraints, space.removed, space.alone, strict=True)
        ],
        "derived": [
            {"name": name, "expression": file.derived[name], "least": least, "greatest": greatest}
            for name, (least, greatest) in space.derived_ranges.items()
        ],
        "expected_latency": {"steps": dict(file.expected_latency), "spread": space.expected_spread},
        "default": space.default,
        "why_another_default": space.why_another_default,
        "facts": space.facts,
        "digest": space.digest,
    }


def space_table(space: Space) -> RenderableType:
    """Parameters, counts, and how many points each constraint removes."""
    file = space.file
    parameters = new_table("parameter", "values", "exists when", "default")
    for name, parameter in file.parameters.items():
        values = ", ".join(str(value) for value in parameter.values)
        parameters.add_row(name, values, parameter.when or "", str(space.default.get(name, "")))
    constraints = new_table("removed", "alone", "of", "constraint", "reason", right=(0, 1))
    for constraint, removed, alone in zip(file.constraints, space.removed, space.alone, strict=True):
        by_itself = f"{alone:,}" if alone is not None else "?"
        of = constraint.place.partition(".constraints")[0] or "space file"
        constraints.add_row(f"{removed:,}", by_itself, of, Text(constraint.expression), Text(constraint.reason))
    amounts = new_table("amount", "expression")
    for name, text in file.amounts.items():
        amounts.add_row(name, text)
    derived = new_table("derived", "expression", "least", "greatest", right=(2, 3))
    for name, text in file.derived.items():
        derived.add_row(name, text, *(f"{amount:,.4g}" for amount in space.derived_ranges[name]))
    head = f"{space.name}: {file.title}\n" + "\n".join(str(problem) for problem in file.problems)
    counts = f"{space.raw_count:,} raw points, {len(space):,} valid here ({len(space) / space.raw_count:.1%})"
    tables = [table for table in (parameters, derived, amounts, constraints) if table.row_count]
    if space.expected_spread is not None:
        counts += f"; expected to differ by {space.expected_spread:.3g}x from the fastest to the slowest"
    notes = [Text(space.why_another_default)] if space.why_another_default else []
    return Group(Text(head), *tables, Text(counts), *notes)


def cage_lines(missing: Sequence[str]) -> list[str]:
    """What the cage around variants lacks here (docs/method/isolation.md)."""
    if not missing:
        return ["The cage around variants is whole on this machine."]
    return [f"The cage around variants lacks a wall here: {each}." for each in missing]


def doctor_document(knobs: Sequence[Knob], has: str, lacks: Sequence[str]) -> dict[str, Any]:
    """The same for programs: the knobs, and what the cage has and lacks here."""
    return {"parameters": [json_of(knob) for knob in knobs], "cage": {"has": has, "lacks": list(lacks)}}


def doctor_table(knobs: Sequence[Knob]) -> RenderableType:
    """Each knob of a space: whether it reaches the program."""
    table = new_table("IMPL", "parameter", "state", "found")
    for knob in knobs:
        style = {"alive": None, "untested": "yellow"}.get(knob.state, "red")
        table.add_row(knob.impl, knob.parameter, Text(knob.state, style=style or ""), knob.detail)
    bad = sum(knob.state in ("dead", "same values") for knob in knobs)
    note = (
        f"{bad} of {len(knobs)} parameters do not reach the program." if bad else f"{len(knobs)} parameters, none dead."
    )
    return Group(table, Text(note))
