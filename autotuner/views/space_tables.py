"""A search space as a person reads it, and as JSON: its parameters, its constraints and what reaches the program."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from autotuner.values.variant import Value
from autotuner.views.table import Column, Table, data
from autotuner.views.terminal import printed

if TYPE_CHECKING:  # numpy takes longer to import than a table to print
    from numpy.typing import NDArray

    from autotuner.devices.kind import Finding
    from autotuner.spaces.dead_parameters import Knob
    from autotuner.spaces.space import BranchPoints, Space


def space_tables(space: Space) -> dict[str, Table]:
    """What a space is made of, by what programs call it."""
    return {
        "branches": Table.of(BRANCHES, [*space.branches, *space.left_out.items()]),
        "parameters": Table.of(PARAMETERS, [(each, name) for each in space.branches for name in each.parameters]),
        "derived": Table.of(DERIVED, [(each, name) for each in space.branches for name in each.branch.derived]),
        "amounts": Table.of(AMOUNTS, [(each, name) for each in space.branches for name in each.branch.amounts]),
        "constraints": Table.of(CONSTRAINTS, [(each, i) for each in space.branches for i in each.applied]),
    }


def _ends(branch: BranchPoints, name: str) -> NDArray[Any]:
    """The values of a derived quantity at the points that have one."""
    column = 2 ** branch.derived[:, list(branch.branch.derived).index(name)]
    return column[column > 0]


BRANCHES: list[Column[Any]] = [
    Column("impl", str, of=lambda e: e[0] if isinstance(e, tuple) else e.impl, head="IMPL"),
    Column("points", int, of=lambda e: 0 if isinstance(e, tuple) else len(e)),
    Column("raw_points", int, of=lambda e: None if isinstance(e, tuple) else e.raw_count, head="of raw"),
    Column(
        "expected_spread",
        float,
        of=lambda e: None if isinstance(e, tuple) else e.expected_spread,
        head="expected to differ by",
        reads=lambda spread: f"{spread:.3g}x",
    ),
    Column("why", str, of=lambda e: e[1] if isinstance(e, tuple) else None, head="none because"),
    data("default", dict[str, Value], of=lambda e: None if isinstance(e, tuple) else e.point(e.default_index)),
]
PARAMETERS: list[Column[Any]] = [
    Column("impl", str, of=lambda e: e[0].impl, head="IMPL"),
    Column("parameter", str, of=lambda e: e[1]),
    Column("values", list[Value], of=lambda e: e[0].values[e[1]], reads=lambda values: ", ".join(map(str, values))),
    Column("default", Value, of=lambda e: e[0].point(e[0].default_index)[e[1]], reads=str),
]
DERIVED: list[Column[Any]] = [
    Column("impl", str, of=lambda e: e[0].impl, head="IMPL"),
    Column("name", str, of=lambda e: e[1], head="derived"),
    Column("expression", str, of=lambda e: e[0].branch.derived[e[1]]),
    Column("least", float, of=lambda e: _ends(*e).min(initial=math.inf), reads=lambda amount: f"{amount:,.4g}"),
    Column("greatest", float, of=lambda e: _ends(*e).max(initial=0.0), reads=lambda amount: f"{amount:,.4g}"),
]
AMOUNTS: list[Column[Any]] = [
    Column("impl", str, of=lambda e: e[0].impl, head="IMPL"),
    Column("name", str, of=lambda e: e[1], head="amount"),
    Column("expression", str, of=lambda e: e[0].branch.amounts[e[1]]),
]
CONSTRAINTS: list[Column[Any]] = [
    Column("impl", str, of=lambda e: e[0].impl, head="IMPL"),
    Column("removed", int, of=lambda e: e[0].removed[e[1]]),
    Column(
        "place",
        str,
        of=lambda e: e[0].branch.constraints[e[1]].place,
        head="of",
        reads=lambda place: place.partition(" of ")[0].rpartition(".")[0] or "space file",
    ),
    Column("expression", str, of=lambda e: e[0].branch.constraints[e[1]].expression, head="constraint"),
    Column("reason", str, of=lambda e: e[0].branch.constraints[e[1]].reason),
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
        "expected_latency": {each.impl: dict(each.branch.expected_latency) for each in space.branches},
        "default": space.default,
        "why_another_default": space.why_another_default,
        "facts": space.facts,
        "digest": space.digest,
    }


def space_shown(space: Space, width: int) -> RenderableType:
    """Parameters, counts, and how many points each constraint removes, in lines of that width."""
    head = f"{space.name}: {space.file.title}\n" + "\n".join(map(str, space.file.problems))
    counts = f"{space.raw_count:,} raw points, {len(space):,} valid here ({len(space) / space.raw_count:.1%})"
    notes = [Text(space.why_another_default)] if space.why_another_default else []
    tables = (printed(each, width) for each in space_tables(space).values() if each.rows)
    return Group(Text(head), *tables, Text(counts), *notes)


def cage_lines(missing: Sequence[str]) -> list[str]:
    """What the cage around variants lacks here (docs/method/isolation.md)."""
    if not missing:
        return ["The cage around variants is whole on this machine."]
    return [f"The cage around variants lacks a wall here: {each}." for each in missing]


def findings_table(findings: Sequence[Finding]) -> Table:
    """What a bug report needs of this machine."""
    wrong = sum(bool(each.remedy) and each.blocks for each in findings)
    note = f"{wrong} to mend before anything is tuned." if wrong else "Nothing here is in the way of tuning."
    return Table.of(FINDINGS, findings, [note])


FINDINGS: list[Column[Finding]] = [
    Column("what", str, head=""),
    Column("said", str, head="found"),
    Column("remedy", str, text=lambda each: each.remedy if each.blocks else f"({each.remedy})" if each.remedy else ""),
    data("blocks", bool, of=lambda each: bool(each.remedy) and each.blocks),
]


def knobs_table(knobs: Sequence[Knob]) -> Table:
    """Each knob of a space: whether it reaches the program."""
    bad = sum(knob.state in ("dead", "same values") for knob in knobs)
    count = len(knobs)
    note = f"{bad} of {count} parameters do not reach the program." if bad else f"{count} parameters, none dead."
    from autotuner.spaces.dead_parameters import unbuilt

    nothing = [f"IMPL={impl}: nothing could be built, so nothing is known of it." for impl in unbuilt(knobs)]
    return Table.of(KNOBS, knobs, nothing or [note])


KNOBS: list[Column[Knob]] = [
    Column("impl", str, head="IMPL"),
    Column("parameter", str),
    Column("state", str, look=lambda knob: {"alive": "good", "untested": "warn"}.get(knob.state, "bad")),
    Column("detail", str, head="found"),
]
