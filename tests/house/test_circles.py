"""No module of the package needs itself through others, not even by an import inside a function."""

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import autotuner

PACKAGE = Path(autotuner.__file__ or "").parent


def imports(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """Every import below a node that is there at run time."""
    for each in ast.iter_child_nodes(node):
        if isinstance(each, ast.Import | ast.ImportFrom):
            yield each
        elif not (isinstance(each, ast.If) and "TYPE_CHECKING" in ast.unparse(each.test)):
            yield from imports(each)


def graph() -> dict[str, set[str]]:
    """The modules of the package, and those that each imports."""
    paths = {path: path.relative_to(PACKAGE.parent).with_suffix("") for path in PACKAGE.rglob("*.py")}
    names = {path: ".".join(part for part in place.parts if part != "__init__") for path, place in paths.items()}
    known, found = set(names.values()), dict[str, set[str]]()
    for path, name in names.items():
        wanted = set()
        for each in imports(ast.parse(path.read_text())):
            if isinstance(each, ast.Import):
                wanted |= {alias.name for alias in each.names}
            else:
                inside = {f"{each.module}.{alias.name}" for alias in each.names}
                wanted |= (inside & known) or {each.module or ""}
        found[name] = (wanted & known) - {name}
    return found


def test_no_module_needs_itself_through_others() -> None:
    found = graph()
    assert len(found) > 250
    tuple(TopologicalSorter(found).static_order())
