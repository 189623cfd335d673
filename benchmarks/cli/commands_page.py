"""docs/reference/commands.md: what every command says of itself with `--help`, at 80 columns."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import typer.main

from autotuner.cli.app import app

HEAD = """# Commands

Drawn by `benchmarks/pages.py` from the command line itself; do not edit. `autotuner COMMAND --help` prints the same.

STUDY is a name or a unique prefix of one, else the study with the latest activity. The store is `studies.db` in the
working directory, `--store PATH` or `$AUTOTUNER_STORE`. With `--json` the answer is JSON. [Exit
codes](architecture.md#exit-codes).
"""


def commands() -> Iterator[tuple[str, Any]]:
    """Every command with the words that call it, those of groups spelled out, in the order of the help."""
    yield from _below(typer.main.get_command(app), "")


def _below(group: Any, path: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        words = f"{path} {name}".strip()
        below = getattr(command, "commands", None)
        if not below or command.invoke_without_command:
            yield words, command
        if below:
            yield from _below(command, words)


def help_of(words: str, command: Any) -> str:
    """What it says of itself, 80 columns wide."""
    with patch.dict(os.environ, {"COLUMNS": "80", "TERMINAL_WIDTH": "80", "NO_COLOR": "1"}):
        context = command.make_context(f"autotuner {words}", [], resilient_parsing=True)
        said = command.get_help(context)
    return re.sub(r"[ \t]+$", "", said, flags=re.MULTILINE).strip()


def page() -> str:
    """The page."""
    sections = (f"## {words}\n\n```text\n{help_of(words, command)}\n```" for words, command in commands())
    return "\n\n".join([HEAD.strip(), *sections]) + "\n"
