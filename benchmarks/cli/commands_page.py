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

Drawn by `benchmarks/pages.py` from what `autotuner COMMAND --help` prints; do not edit.

STUDY is a name or a unique prefix of one, else the study with the latest activity. Not repeated below are `--help`;
`--store <str>`, path or URL of the study store, else `$AUTOTUNER_STORE`, else `studies.db` in the working directory;
and `--json`, which prints JSON instead of text. [Exit codes](architecture.md#exit-codes).
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
        said = re.sub(r"^  study <str> .*\n(?: {4,}.*\n)*", "", said, flags=re.MULTILINE)
        said = said.replace(" [OPTIONS]", "", 1).replace(" range>", ">      ")
        said = re.sub(r";?\s+\[?[01]<=x<=2147483647\]", lambda bound: "" if "[" in bound[0] else "]", said)
        said = re.sub(r" +$", "", said, flags=re.MULTILINE)
        yield f"## {words}\n\n```text\n{said}\n```{more}"


def without(option: str) -> str:
    """The commands that lack one of the options that the head describes."""
    lacking = [words for words, command in commands() if option not in options_of(help_of(words, command))]
    return ", ".join(f"`{words}`" for words in lacking)


def page() -> str:
    """The page."""
    said = f"Without `--store` are {without('--store')}; without `--json` {without('--json')}."
    return "\n\n".join([HEAD.strip(), said, *sections()]) + "\n"
