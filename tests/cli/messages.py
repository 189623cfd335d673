"""What the command line says, its help apart, in one file: `python -m tests.cli.messages` prints messages.txt.

Each command is called in this process, in a folder with a small store and space files with one mistake each.
"""

import contextlib
import io
import os
import re
import shlex
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from typer import Typer

from autotuner.cli import app as program
from autotuner.values import config
from tests.helpers import hostile_commands
from tests.helpers.stores import sample_store

ROOT = Path(__file__).parent.parent.parent
FILE = Path(__file__).parent / "messages.txt"
ENVIRONMENT = {
    **{"COLUMNS": "100", "TERMINAL_WIDTH": "100", "NO_COLOR": "1", "TERM": "dumb", "TZ": "UTC"},
    "AUTOTUNER_CACHE": "cache",
}
"""The file is made under these."""
SPACES = ", ".join(sorted(path.stem for path in config.spaces_dir().glob("*.toml")))
"""The names of the spaces that are shipped, as a message lists them."""

MISTAKES: dict[str, list[str]] = tomllib.loads((FILE.parent / "spaces.toml").read_text())
"""Space files with one mistake: what is replaced by what in that of examples/own_kernel."""


def calls(name: str) -> tuple[tuple[str, ...], ...]:
    """The command lines of a file beside this one, as a user types them after the program's name."""
    return tuple(tuple(shlex.split(line)) for line in (FILE.parent / name).read_text().splitlines())


ANSWERS = calls("answers.txt")
"""What can be asked of the store in the folder."""
REFUSALS = (
    *calls("mistakes.txt"),
    *(("space", "show", f"{name}.toml") for name in MISTAKES),
)
"""Mistakes, each of which is answered in one line."""


def lay_out(folder: Path) -> None:
    """The folder in which all is said."""
    shutil.copytree(ROOT / "examples" / "own_kernel", folder, dirs_exist_ok=True)
    text = (folder / "space.toml").read_text()
    (folder / "right.toml").write_text(text)
    for name, (old, new) in MISTAKES.items():
        assert old in text, name
        (folder / f"{name}.toml").write_text(text.replace(old, new, 1))
    (folder / "shapes.toml").write_text("problems = [{ batch = 1 }]\n")
    (folder / "text.db").write_text("no database\n" * 100)
    (folder / "empty.db").write_text("")
    sample_store(folder / "studies.db")
    sample_store(folder / "unmeasured.db")
    forget_trials(folder / "unmeasured.db")


def forget_trials(path: Path) -> None:
    import sqlite3

    with contextlib.closing(sqlite3.connect(path)) as raw, raw:
        for table in ("at_block", "at_heat", "at_finals", "at_trial"):
            raw.execute(f"DELETE FROM {table}")


def said(arguments: tuple[str, ...]) -> str:
    """What a command prints on both streams, and how it ends."""
    streams = io.StringIO()
    sys.argv = ["autotuner", *arguments]
    with contextlib.redirect_stdout(streams), contextlib.redirect_stderr(streams):
        try:
            program.run()
        except SystemExit as end:
            code = end.code or 0
    return streams.getvalue() + (f"[exit code {code}]\n" if code else "")


def document(folder: Path) -> Iterator[str]:
    """The sections of the file."""
    yield "What the command line says. Made by `python -m tests.cli.messages > tests/cli/messages.txt`.\n"
    for title, calls in (("Answers", ANSWERS), ("Mistakes", REFUSALS)):
        yield f"{'=' * 100}\n{title}\n{'=' * 100}\n"
        for call in calls:
            yield f"$ autotuner {' '.join(part if ' ' not in part else repr(part) for part in call)}".rstrip() + "\n"
            yield neutral(said(tuple(call)), folder)


def neutral(text: str, folder: Path) -> str:
    """The text without what differs between machines."""
    text = text.replace(str(folder), "FOLDER").replace(str(folder.parent), "ABOVE").replace(str(ROOT), "ROOT")
    text = text.replace("python -m tests.cli.autotuner", "autotuner").replace(SPACES, "SPACES")
    text = re.sub(r"0x[0-9a-f]{8,}", "0x...", text)
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def main() -> None:
    """Prints the file, in a process with its environment: widths are read when modules are imported."""
    if any(os.environ.get(name) != value for name, value in ENVIRONMENT.items()) or "AUTOTUNER_STORE" in os.environ:
        environment = {**os.environ, **ENVIRONMENT}
        environment.pop("AUTOTUNER_STORE", None)
        os.execve(sys.executable, [sys.executable, "-m", __spec__.name], environment)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve() / "user"
        lay_out(folder)
        os.chdir(folder)
        out = sys.stdout
        program.app = cast(Typer, hostile_commands.program())  # else it is made for each
        for part in document(folder):
            out.write(f"{part}\n")


if __name__ == "__main__":
    main()
