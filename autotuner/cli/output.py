"""Where the commands print: text on standard output, errors on standard error, JSON for programs."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.segment import Segment

from autotuner.values import config
from autotuner.values.model import json_of as json_of  # the commands take it from here
from autotuner.values.toml_text import is_control

if TYPE_CHECKING:
    from autotuner.tuning.finals.standings import Best
    from autotuner.tuning.run.waiting import Waiting
    from autotuner.views.table import Table

OF_STORES = re.compile("`autotuner (?!space|cache|doctor|verify|[^`]*--(help|store))[^`]+(?=`)")
"""Command lines, in what is said, that take --store."""
WIDE = 180
"""Columns of what is no terminal, where nobody says how many it has."""


class PlainConsole(Console):
    """Prints text as it is: brackets are no markup, and what a terminal would obey is shown as an escape. What is
    printed may come from a kernel's author, a compiler or a damaged store."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, soft_wrap=True, **options)

    there = ""
    """The --store of the command: those that it names, in backticks, are to look there too."""

    def render(self, renderable: Any, options: Any = None) -> Any:
        for segment in super().render(renderable, options):
            text = OF_STORES.sub(lambda found: found[0] + self.there, segment.text)
            yield segment if segment.control else Segment(shown(text), segment.style)

    def on_broken_pipe(self) -> None:
        """Where the reader has gone the program ends as for all its output: to Rich it would be code 1, a finding."""
        raise BrokenPipeError


def shown(text: str) -> str:
    """The text with every control character as an escape."""
    if text.isprintable():
        return text
    return "".join(f"\\x{ord(each):02x}" if each == "\r" or is_control(each) else each for each in text)


out = PlainConsole(width=None if sys.stdout.isatty() else config.columns() or WIDE)
err = PlainConsole(stderr=True)


def looks_at(store: str | None) -> str | None:
    """Notes the --store of the command, without its password; the same."""
    there = "" if store is None else f" --store {shlex.quote(store)}"
    out.there = err.there = re.sub("(?<=:)[^/:@]*(?=@)", "***", there)
    return store


def print_lines(lines: Sequence[str]) -> None:
    """Prints lines as they are, whatever brackets they have."""
    for line in lines:
        out.print(line)


def json_text(document: Any) -> str:
    """JSON-ready data as all commands write it."""
    return json.dumps(document, indent=1)


def print_json(document: Any) -> None:
    """Prints a document of JSON-ready data."""
    typer.echo(json_text(document))


def print_table(table: Table, as_json: bool, document: Any = None, empty: str = "", in_full: bool = False) -> None:
    """Prints a table, or with `as_json` its rows, or the `document` that stands for it. `empty`: what is said where it
    has no rows; `in_full`: each row as some lines."""
    from autotuner.views.terminal import printed, printed_in_full

    if as_json:
        print_json(table.json() if document is None else document)
    elif empty and not table.rows:
        out.print(empty)
    else:
        out.print(printed_in_full(table) if in_full else printed(table, out.width))


def say_waiting(event: Waiting) -> None:
    """Prints what a command waits for before it has anything to show."""
    err.print(f"waiting: {event.detail}; since {event.since_s:.0f} s", markup=False)


def say_doing(what: str) -> None:
    """Prints what a command does now, before it has anything to show."""
    err.print(f"{what} ...", markup=False)


def say_remark(line: str) -> None:
    """Prints what a look at the sources shows before anything is built, and what takes long."""
    err.print(line, style="yellow", markup=False)


def say_reservations(*bests: Best) -> None:
    """Prints where these may not be the fastest, and what the family's kernel.toml takes away from the proof."""
    from autotuner.views.trial_words import reservations

    lines = [line for best in bests for line in reservations(best)]
    reasons = [reason for best in bests if (gate := best.outcome.gate) is not None for reason in gate.policy.looser]
    lines += [f"The family's kernel.toml loosens the gate: {reason}" for reason in reasons]
    for line in dict.fromkeys(lines):
        out.print(line, style="yellow")
