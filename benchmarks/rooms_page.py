"""Parts of docs/reference/architecture.md that follow from the imports: the diagram of the rooms, and their doors."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from benchmarks.provenance import ROOT

PACKAGE = ROOT / "autotuner"
ITSELF = "the room itself"
NEAR = 0.05
"""By how much, relative, a number of lines may be off before it is drawn anew: not with every change."""


@cache
def rooms() -> dict[str, int]:
    """The layer of each room, as the contracts of pyproject.toml have it."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(each["layers"] for each in contracts if each["type"] == "layers")
    found = {
        name.split(".")[1]: layer for layer, names in enumerate(layers, 1) for name in re.split(r" *[:|] *", names)
    }
    return {room: layer for room, layer in found.items() if (PACKAGE / room / "__init__.py").is_file()}


def imported(path: Path) -> Iterator[str]:
    """The modules of the package that a module imports, at its top or where it needs them."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for each in node.names:
                inner = ROOT.joinpath(*node.module.split("."), each.name)
                is_module = inner.with_suffix(".py").is_file() or (inner / "__init__.py").is_file()
                yield f"{node.module}.{each.name}" if is_module else node.module


def across() -> Iterator[tuple[str, str, str]]:
    """Every import from one room, or from a module outside of them, into another: who, which room, and its module."""
    for path in sorted(PACKAGE.rglob("*.py")):
        own = path.relative_to(PACKAGE).parts[0]
        for name in imported(path):
            package, _, rest = name.partition(".")
            room, _, module = rest.partition(".")
            if package == PACKAGE.name and room in rooms() and room != own:
                yield own, room, module or ITSELF


def doors() -> str:
    """The table of the modules of each room that others import."""
    found: dict[str, set[str]] = defaultdict(set)
    for _, room, module in across():
        found[room].add(module)
    return "\n".join(
        ["| room | its door |", "|---|---|", *(f"| `{room}` | {_door(room, found[room])} |" for room in rooms())]
    )


def _door(room: str, modules: set[str]) -> str:
    if modules == {path.stem for path in (PACKAGE / room).glob("*.py")} - {"__init__"}:
        return "every module"
    named = [f"`{module}`" for module in sorted(modules - {ITSELF})]
    return ", ".join([ITSELF, *named] if ITSELF in modules else named)


def arrows() -> list[tuple[str, str]]:
    """Who imports whom, without the arrows that follow from others."""
    direct: dict[str, set[str]] = {room: set() for room in rooms()}
    for own, room, _ in across():
        if own in direct:
            direct[own].add(room)

    def reached(room: str) -> set[str]:
        return direct[room].union(*map(reached, direct[room]))

    return [
        (room, other)
        for room, others in direct.items()
        for other in sorted(others, key=[*direct].index)
        if not any(other in reached(between) for between in others)
    ]


def lines_of(room: str) -> int:
    """Lines of Python in a room."""
    return sum(len(path.read_text().splitlines()) for path in (PACKAGE / room).rglob("*.py"))


def diagram(before: str) -> str:
    """The rooms, in mermaid: a layer a row, with the lines of each. A number of lines that stood in the diagram
    `before` and is near enough stays."""
    layers: dict[int, list[str]] = defaultdict(list)
    for room, layer in rooms().items():
        layers[layer].append(f'{room}["{room}<br>{_lines(room, before):,} lines"]')
    found = ["```mermaid", "flowchart TD"]
    for layer, nodes in layers.items():
        found += [f'  subgraph layer{layer}["layer {layer}"]', *(f"    {node}" for node in nodes), "  end"]
    return "\n".join([*found, *(f"  {room} --> {other}" for room, other in arrows()), "```"])


def _lines(room: str, before: str) -> int:
    now = lines_of(room)
    said = re.search(rf'\["{room}<br>([\d,]+) lines"\]', before)
    old = int(said[1].replace(",", "")) if said is not None else 0
    return old if abs(old - now) <= NEAR * now else round(now, -1)
