"""A recording of a real run, as a terminal of 80 columns shows it: an SVG for README.md.

    python -m benchmarks.recording OUT.svg [--trials 8] [--judged 5] [ARGUMENTS OF autotuner ...]

It runs `autotuner tune examples/own_kernel/space.toml` with these arguments on a terminal of its own, and draws what
the screen shows once --judged variants are judged, and at the end.
"""

from __future__ import annotations

import argparse
import fcntl
import io
import os
import pty
import re
import struct
import sys
import tempfile
import termios
from collections.abc import Iterator
from pathlib import Path

import pyte
from rich.console import Console
from rich.text import Text

from benchmarks.provenance import ROOT

COLUMNS, ROWS = 80, 200
"""More rows than a run prints: nothing scrolls away."""
FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
"""That a drawing of Rich fetches from elsewhere."""


def bytes_of(command: list[str]) -> Iterator[bytes]:
    """What a command writes to its terminal."""
    process, end = pty.fork()
    if process == 0:
        os.environ.update(TERM="xterm-256color", COLUMNS=str(COLUMNS))
        os.execvp(command[0], command)
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    while True:
        try:
            found = os.read(end, 65536)
        except OSError:  # the command has ended
            break
        if not found:
            break
        yield found
    os.close(end)
    os.waitpid(process, 0)


def lines(screen: pyte.Screen) -> list[Text]:
    """The lines of a screen that have something in them, with their colours."""
    found = []
    for row in range(ROWS):
        line = Text(no_wrap=True)
        for column in range(COLUMNS):
            cell = screen.buffer[row][column]
            colour = "" if cell.fg == "default" else {"brown": "yellow"}.get(cell.fg, cell.fg)
            line.append(cell.data, style=f"{'bold ' if cell.bold else ''}{colour}".strip())
        line.rstrip()
        found.append(line)
    while found and not found[-1].plain:
        found.pop()
    return found


def recorded(command: list[str], judged: int) -> tuple[list[Text], list[Text]]:
    """The screen once `judged` variants are judged, and at the end."""
    screen = pyte.Screen(COLUMNS, ROWS)
    stream, middle = pyte.ByteStream(screen), list[Text]()
    for part in bytes_of(command):
        stream.feed(part)
        if not middle and any(re.match(rf"{judged}/\d+ ", line) for line in screen.display):
            middle = lines(screen)
    return middle, lines(screen)


def main() -> None:
    """Runs, and draws."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--trials", type=int, default=8)
    parser.add_argument("--judged", type=int, default=5)
    options, more = parser.parse_known_args()
    out = options.out.absolute()
    os.chdir(ROOT)
    with tempfile.TemporaryDirectory() as folder:
        files = ["--store", f"{folder}/studies.db", "--out", f"{folder}/best.json"]
        arguments = ["tune", "examples/own_kernel/space.toml", "--trials", str(options.trials), *more]
        script = Path(sys.executable).parent / "autotuner"
        middle, end = recorded([str(script), *arguments, *files], options.judged)
        console = Console(record=True, width=COLUMNS, file=io.StringIO())
        typed = Text(f"$ autotuner {' '.join(arguments)}", style="bold")
        for part in ([typed, *middle], [Text("..."), *end[len(middle) - 2 :]]):
            for line in part:
                hidden = line.plain.replace(f"{folder}/", "")
                console.print(line if hidden == line.plain else Text(hidden), soft_wrap=True)
    drawn = FONTS.sub("", console.export_svg(title="autotuner")).replace("Fira Code", "monospace")
    out.write_text(drawn)


if __name__ == "__main__":
    main()
