"""The processes of this machine as /proc shows them, and which of them are our own. Nothing where there is no /proc."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

TICKS = os.sysconf("SC_CLK_TCK")
"""Units of CPU time a second in /proc."""


class Process(NamedTuple):
    """A process at one moment."""

    pid: int
    name: str
    parent: int
    seconds: float
    """Of CPU time, all its threads together, since it started."""

    def __str__(self) -> str:
        return f"{self.name} (pid {self.pid})"


def process(pid: int) -> Process | None:
    """The process of that number; None when there is none, or it cannot be seen from here."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    name, _, rest = text.partition("(")[2].rpartition(")")  # a name may hold blanks and brackets
    fields = rest.split()
    return Process(pid, name, int(fields[1]), (int(fields[11]) + int(fields[12])) / TICKS)


def processes() -> dict[int, Process]:
    """Every process that can be seen from here, by number."""
    try:
        numbers = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
    except OSError:
        return {}
    return {pid: found for pid in numbers if (found := process(pid)) is not None}


def own(found: Iterable[Process]) -> set[int]:
    """The numbers of this process and of all that it has started, themselves or through others."""
    children: dict[int, list[int]] = {}
    for each in found:
        children.setdefault(each.parent, []).append(each.pid)
    mine, new = set[int](), [os.getpid()]
    while new:
        mine.update(new)
        new = [child for pid in new for child in children.get(pid, []) if child not in mine]
    return mine
