"""One module goes from a log-ratio to a speedup, and changes an interval's ends; one makes intervals."""

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import autotuner

PACKAGE = Path(autotuner.__file__ or "").parent
ONE = "values/ratio.py"
OTHER_EXPONENTS = {"search/covariance.py", "search/surrogate.py"}
"""Modules with negative exponents that are no ratios: of covariances and of the normal density."""
METHODS = "race/statistics.py"
QUANTILES = {"stdtrit", "ndtri", "NormalDist", "t_interval", "bootstrap", "SIGMAS"}
"""What an interval is made with."""


def sources() -> Iterator[tuple[str, ast.Module]]:
    """Every module of the package by its path in it."""
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.relative_to(PACKAGE).as_posix(), ast.parse(path.read_text())


def name_of(node: ast.AST) -> str:
    """The last part of a name, of an attribute or of neither: ""."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def is_negative_exponent(node: ast.AST) -> bool:
    """exp(-x), of whichever library."""
    called = isinstance(node, ast.Call) and name_of(node.func) in ("exp", "exp2", "expm1") and node.args
    return bool(called) and isinstance(node.args[0], ast.UnaryOp) and isinstance(node.args[0].op, ast.USub)  # type: ignore[attr-defined]


def is_exchange(node: ast.AST) -> bool:
    """low=f(x.high), high=f(x.low), or a pair (x.high, x.low)."""
    if isinstance(node, ast.Tuple):
        ends = [name_of(each) for each in node.elts]
        return "high" in ends and "low" in ends[ends.index("high") :]
    if not (isinstance(node, ast.keyword) and node.arg):
        return False
    opposite = {"low": "high", "high": "low"}.get(node.arg.rpartition("_")[2])
    return opposite is not None and opposite in map(name_of, ast.walk(node.value))


def places(finds: Callable[[ast.AST], bool], but: set[str]) -> list[str]:
    """Where the package has such a node, as path:line."""
    return [
        f"{path}:{getattr(node, 'lineno', 0)}"
        for path, tree in sources()
        if path not in but
        for node in ast.walk(tree)
        if finds(node)
    ]


def test_no_module_but_one_makes_a_speedup_of_a_log_ratio() -> None:
    assert places(is_negative_exponent, {ONE, *OTHER_EXPONENTS}) == []


def test_no_module_but_one_changes_an_intervals_ends() -> None:
    assert places(is_exchange, {ONE}) == []


def test_what_intervals_are_made_with_is_defined_in_one_module() -> None:
    def makes(node: ast.AST) -> bool:
        defines = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in QUANTILES
        imports = isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] in ("scipy", "statistics")
        return defines or (imports and any(each.name in QUANTILES for each in node.names))  # type: ignore[attr-defined]

    assert places(makes, {METHODS}) == []


def is_statistics(node: ast.AST) -> bool:
    """A median, a quantile or an interval, or what the square root of a variance is taken with."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        of = [node.module or ""] if isinstance(node, ast.ImportFrom) else [each.name for each in node.names]
        return any(each.split(".")[-1] in {"statistics", "scipy", "numpy"} for each in of)
    called = name_of(node.func) if isinstance(node, ast.Call) else ""
    return called in {"sqrt", "median", "quantile", "percentile", "percentile_cont", "stddev", "var_pop", "fmean"}


def test_the_store_computes_no_statistics() -> None:
    """It holds and finds: a median, a quantile or an interval of what it holds is made in the rooms above."""
    others = {path for path, _ in sources() if not path.startswith("store/")}
    assert places(is_statistics, others) == []
