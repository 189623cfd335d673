"""The doors of the rooms: what other rooms import is what docs/architecture.md says, no more and no less."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import autotuner

PACKAGE = Path(autotuner.__file__ or "").parent
PAGE = PACKAGE.parent / "docs" / "architecture.md"
ITSELF = "the room itself"
ROOMS = sorted(path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file())


def imported(path: Path) -> Iterator[str]:
    """The modules of the package that a module imports, at its top or where it needs them."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for each in node.names:
                inner = PACKAGE.parent.joinpath(*node.module.split("."), each.name)
                is_module = inner.with_suffix(".py").is_file() or (inner / "__init__.py").is_file()
                yield f"{node.module}.{each.name}" if is_module else node.module


@cache
def doors() -> dict[str, set[str]]:
    """For each room the modules that others import."""
    found = defaultdict(set)
    for path in PACKAGE.rglob("*.py"):
        own = path.relative_to(PACKAGE).parts[0]
        for name in imported(path):
            package, _, rest = name.partition(".")
            room, _, module = rest.partition(".")
            if package == PACKAGE.name and room in ROOMS and room != own:
                found[room].add(module or ITSELF)
    return found


def said() -> dict[str, str]:
    """For each room its row in the table."""
    page = PAGE.read_text().partition("| room | its door |\n")[2].partition("\n\n")[0]
    return dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", page, re.MULTILINE))


def test_every_room_has_a_door() -> None:
    assert sorted(said()) == ROOMS


@pytest.mark.parametrize("room", ROOMS)
def test_other_rooms_come_in_by_the_door(room: str) -> None:
    modules = {path.stem for path in (PACKAGE / room).glob("*.py")} - {"__init__"}
    row = said()[room]
    named = modules if row == "every module" else {*re.findall(r"`([\w.]+)`", row)}
    assert named | ({ITSELF} if ITSELF in row else set()) == doors()[room]
