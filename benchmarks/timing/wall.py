"""Where the wall time of a sweep goes, by when each line of its output came: installing, search, finals."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

BEGINS = re.compile(r"^\S+: [\d,]+ valid points")
"""The first line of a sweep."""

AT_ONCE = {"PYTHONUNBUFFERED": "1"}
"""For lines that come as they are written."""


class Line(NamedTuple):
    """A line, and when it came: seconds since the command was started."""

    at: float
    text: str


class Run(NamedTuple):
    """A command that has ended."""

    lines: tuple[Line, ...]
    seconds: float
    code: int

    @property
    def text(self) -> str:
        """All that it wrote."""
        return "".join(f"{line.text}\n" for line in self.lines)


def run(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Run:
    """Runs a command to its end and shows what it says meanwhile. What it writes to stderr is not among the lines."""
    started = time.monotonic()
    lines: list[Line] = []
    environment = {**environment, **AT_ONCE}
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for text in process.stdout:
            lines.append(Line(time.monotonic() - started, text.rstrip("\n")))
            print(lines[-1].text, flush=True)
    return Run(tuple(lines), time.monotonic() - started, process.returncode)


def phases(done: Run) -> dict[str, float]:
    """Seconds of a sweep: before it (`before_s`: installing), of its search with the calibration, and of its finals.
    Raises ValueError where there was no sweep."""
    begun = next((line.at for line in done.lines if BEGINS.match(line.text)), None)
    if begun is None:
        raise ValueError("no sweep began")
    ended = next((line.at for line in done.lines if line.text.startswith("finals: ")), done.seconds)
    found = {"before_s": begun, "search_s": ended - begun, "finals_s": done.seconds - ended}
    return {name: round(seconds, 1) for name, seconds in found.items()}


def whole(found: Mapping[str, Any]) -> float:
    """Seconds of a sweep, search and finals."""
    return float(found["search_s"] + found["finals_s"])
