"""The kept results of benchmarks/search/transfer.py, for docs/method/search.md."""

from __future__ import annotations

from typing import Any

Document = dict[str, Any]

HALF, WORSE = 0.5, 1.05
"""What is hoped for: half of the evaluations, and never 5 % more of them than cold, nor at any count a mean best so far
that is more than 5 % worse."""


def _interval(ratio: dict[str, float], digits: int = 2) -> str:
    return f"{ratio['ratio']:.{digits}f} ({ratio['low']:.{digits}f} to {ratio['high']:.{digits}f})"


def _said(run: Document) -> str:
    """What the table comes to."""
    halved = {
        of: sum(each[f"{of}_evaluations"]["ratio"]["ratio"] <= HALF for each in run["rows"])
        for of in ("median", "mean")
    }
    near = sum(each["worst_best_so_far"]["ratio"]["ratio"] <= WORSE for each in run["rows"])
    never = sum(each["mean_evaluations"]["ratio"]["ratio"] <= WORSE for each in run["rows"])
    median, mean, pairs = halved["median"], halved["mean"], len(run["rows"])
    said = f"Of {pairs} pairs, a search that knows the source needs at most half of a cold one's evaluations by the"
    said += f" median on {median}, by the mean on {mean}; at most 5 % more by the mean on {never}; its best so far is"
    said += f" never more than 5 % worse on {near}. {run['seeds']} searches of a pair, {run['evaluations_of_a_source']}"
    said += f" evaluations of a source; a search ends within {100 * run['within']:g} % of the optimum."
    return said


def said(run: Document | None) -> str:
    """What the kept result comes to, in words."""
    return "No result is kept yet." if run is None else _said(run)


def said_of_others(run: Document | None, shown: Document | None) -> str:
    """The same of the pairs of a run that are not among those `shown` already."""
    return "No result is kept yet." if run is None else _said({**run, "rows": _new(run, shown)})


def _new(run: Document, shown: Document | None) -> list[Document]:
    known = set() if shown is None else {(each["source"], each["target"]) for each in shown["rows"]}
    return [each for each in run["rows"] if (each["source"], each["target"]) not in known]
