"""One module goes from a log-ratio to a speedup, and changes an interval's ends; one makes intervals."""

import ast
from collections.abc import Callable
from pathlib import Path

import autotuner

PACKAGE = Path(autotuner.__file__ or "").parent
ONE = "values/ratio.py"
OTHER_EXPONENTS = {"search/covariance.py", "search/surrogate.py"}
"""Modules with negative exponents that are no ratios: of covariances and of the normal density."""
METHODS = "race/statistics.py"
QUANTILES = {"stdtrit", "ndtri", "NormalDist", "t_interval", "bootstrap", "SIGMAS"}
"""What an interval is made with."""


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


def makes_intervals(node: ast.AST) -> bool:
    defines = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in QUANTILES
    imports = isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] in ("scipy", "statistics")
    return defines or (imports and any(each.name in QUANTILES for each in node.names))  # type: ignore[attr-defined]


def is_statistics(node: ast.AST) -> bool:
    """A median, a quantile or an interval, or what the square root of a variance is taken with."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        of = [node.module or ""] if isinstance(node, ast.ImportFrom) else [each.name for each in node.names]
        return any(each.split(".")[-1] in {"statistics", "scipy", "numpy"} for each in of)
    called = name_of(node.func) if isinstance(node, ast.Call) else ""
    return called in {"sqrt", "median", "quantile", "percentile", "percentile_cont", "stddev", "var_pop", "fmean"}


def finds(path: str) -> list[Callable[[ast.AST], bool]]:
    """What a module must not do. The store holds and finds: statistics of what it holds are made in the rooms above."""
    return [
        *([is_negative_exponent] if path not in {ONE, *OTHER_EXPONENTS} else []),
        *([is_exchange] if path != ONE else []),
        *([makes_intervals] if path != METHODS else []),
        *([is_statistics] if path.startswith("store/") else []),
    ]


def test_one_module_makes_speedups_one_makes_intervals_and_the_store_computes_no_statistics() -> None:
    """In one walk, which takes 2 s."""
    wrong = [
        f"{path}:{getattr(node, 'lineno', 0)}: {rule.__name__}"
        for source in sorted(PACKAGE.rglob("*.py"))
        for path in [source.relative_to(PACKAGE).as_posix()]
        for rules in [finds(path)]
        for node in ast.walk(ast.parse(source.read_text()))
        for rule in rules
        if rule(node)
    ]
    assert wrong == []
