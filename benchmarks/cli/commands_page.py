"""docs/reference/commands.md: what every command says of itself with `--help`, at 80 columns."""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import typer.main

from autotuner.cli.app import app

HEAD = """# Commands

Drawn by `benchmarks/pages.py` from `--help`.

STUDY is a name or a unique prefix of one, else the study with the latest activity. Not repeated below are `--help`;
`--store`, path or URL of the study store, else `$AUTOTUNER_STORE`, else `studies.db` in the working directory;
and `--json`, which prints JSON instead of text; most commands have both. [Exit codes](architecture.md#exit-codes).
"""

EVERYWHERE = ("--help", "--store", "--json")
"""Options that the head of the page describes, once for all commands."""


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


def options_of(said: str) -> dict[str, str]:
    """The lines on each option in a command's help, by its long name."""
    found = re.finditer(r"^  (?:-\w, )?(--[\w-]+)(?: .*)?$(?:\n {4,}\S.*$)*", said, re.MULTILINE)
    return {each[1]: each[0] for each in found}


def sections() -> Iterator[str]:
    """A section a command. Options that all commands have are left out, and so are those that say what they say of
    `tune`, which are named."""
    kept: dict[str, str] = {}
    for words, command in commands():
        said = re.sub(r"Arguments:\n  study <str>.*(?:\n {4,}.*)*\n\n", "", help_of(words, command))
        options = options_of(said)
        shared = [name for name in options if options[name].split() == kept.get(name, "").split()]
        kept |= options if words == "tune" else {}
        for name in {*EVERYWHERE, *shared} & {*options}:
            said = said.replace(f"{options[name]}\n", "").replace(options[name], "")
        left = sorted({*shared} - {*EVERYWHERE})
        more = f"\n\nAnd as [tune](#tune): {', '.join(f'`{name}`' for name in left)}." if left else ""
        said = re.sub(r"\n\nOptions:\s*(?=\Z|\nCommands:)", "\n", said).strip()
        said = re.sub(r"^  (?:study|STUDY) <str> .*\n(?: {4,}.*\n)*", "", said, flags=re.MULTILINE)
        said = re.sub(r"Arguments:\s*(?=\Z|\nOptions:)", "", f"{said}\n").strip()
        said = said.replace(" [OPTIONS]", "", 1).replace(" range>", ">      ").replace("  [required]", "")
        said = re.sub(r";?\s+\[?-?[\d.]+<=x<=[\d.]+\]", lambda bound: "" if "[" in bound[0] else "]", said)
        said = re.sub(r"(?:;\s+x>=[\d.]+(?=\])|\s+\[x>=[\d.]+\])", "", said)
        said = re.sub(r"^(  (?:-\w, )?--[\w-]+) (?=<)", r"\1=", said, flags=re.MULTILINE).replace("\n\n\n", "\n\n")
        said = said.removeprefix("Usage: ").removeprefix(f"autotuner {words}\n").strip("\n")
        said = re.sub(r" +$", "", textwrap.indent(said, "    "), flags=re.MULTILINE)
        yield f"## {words}\n\n{said}{more}"


def page() -> str:
    """The page."""
    return "\n\n".join([HEAD.strip(), *sections()]) + "\n"
