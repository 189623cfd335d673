"""Where the commands print: text on standard output, errors on standard error, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer
from rich.console import Console

if TYPE_CHECKING:
    from pydantic import BaseModel, JsonValue

    from autotuner.tuning.standings import Best

out = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 180)
err = Console(stderr=True, highlight=False, soft_wrap=True)


def print_lines(lines: Sequence[str]) -> None:
    """Prints lines as they are, whatever brackets they have."""
    for line in lines:
        out.print(line, markup=False)


def print_json(document: JsonValue) -> None:
    """Prints a document of JSON-ready data."""
    typer.echo(json.dumps(document, indent=1, sort_keys=False))


def json_of(model: BaseModel) -> dict[str, JsonValue]:
    """A model as JSON-ready data, with infinite and missing numbers as null."""
    document: dict[str, JsonValue] = json.loads(model.model_dump_json(), parse_constant=lambda _: None)
    return document


def say_where_the_gate_is_looser(best: Best) -> None:
    """Prints what the family's kernel.toml takes away from the proof."""
    gate = best.outcome.gate
    for reason in gate.policy.looser if gate is not None else ():
        out.print(f"The family's kernel.toml loosens the gate: {reason}", style="yellow", markup=False)
