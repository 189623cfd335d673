"""The kept results of benchmarks/search/transfer.py, for docs/search.md and docs/results/search.md."""

from __future__ import annotations

from typing import Any

from benchmarks.attention.cuda_pages import table
from benchmarks.provenance import made

Document = dict[str, Any]

HALF, WORSE = 0.5, 1.05
"""What is hoped for: half of the evaluations, and never 5 % more of them than cold, nor at any count a mean best so far
that is more than 5 % worse."""


def _interval(ratio: dict[str, float], digits: int = 2) -> str:
    return f"{ratio['ratio']:.{digits}f} ({ratio['low']:.{digits}f} to {ratio['high']:.{digits}f})"


def _row(each: Document) -> list[str]:
    median, mean, worst = each["median_evaluations"], each["mean_evaluations"], each["worst_best_so_far"]
    there = each["optimum_of_source_there"]
    return [
        each["source"],
        each["target"],
        "-" if there is None else f"{there:.2f}",
        f"{median['cold']:.0f}, {median['warm']:.0f}",
        _interval(median["ratio"]),
        f"{mean['cold']:.1f}, {mean['warm']:.1f}",
        _interval(mean["ratio"]),
        ", ".join("yes" if each["ratio"]["ratio"] <= HALF else "**no**" for each in (median, mean)),
        f"{mean['unaided']:.1f}",
        _interval(mean["ratio_to_unaided"]),
        *(f"{ratio['ratio']:.3f}" for ratio in each["best_so_far"].values()),
        f"{_interval(worst['ratio'], 3)} after {worst['after']}",
        ", ".join("yes" if each["ratio"]["ratio"] <= WORSE else "**no**" for each in (mean, worst)),
    ]


def _said(run: Document) -> str:
    """What the table comes to."""
    halved = {
        of: sum(each[f"{of}_evaluations"]["ratio"]["ratio"] <= HALF for each in run["rows"])
        for of in ("median", "mean")
    }
    near = sum(each["worst_best_so_far"]["ratio"]["ratio"] <= WORSE for each in run["rows"])
    never = sum(each["mean_evaluations"]["ratio"]["ratio"] <= WORSE for each in run["rows"])
    median, mean, pairs = halved["median"], halved["mean"], len(run["rows"])
    said = f"Of {pairs} pairs, a search that knows the source needs half of the evaluations of a cold one, or fewer,"
    said += f" by the median on {median}, by the mean on {mean}. By the mean it needs at most 5 % more on {never}; its"
    said += f" best so far is never more than 5 % worse on {near}. {run['seeds']} searches of each pair with and"
    said += f" without the source, which was searched for {run['evaluations_of_a_source']} evaluations; a search ends"
    said += f" within {100 * run['within']:g} % of the optimum."
    return said


def _brief(each: Document) -> list[str]:
    mean, worst = each["mean_evaluations"], each["worst_best_so_far"]
    return [
        each["source"],
        each["target"],
        f"{mean['cold']:.1f}, {mean['warm']:.1f}",
        _interval(mean["ratio"]),
        "yes" if mean["ratio"]["ratio"] <= HALF else "**no**",
        f"{each['best_so_far']['10']['ratio']:.3f}",
        f"{_interval(worst['ratio'], 3)} after {worst['after']}",
        ", ".join("yes" if of["ratio"]["ratio"] <= WORSE else "**no**" for of in (mean, worst)),
    ]


def said(run: Document | None) -> str:
    """What the kept result comes to, in words."""
    return "No result is kept yet." if run is None else _said(run)


def said_of_others(run: Document | None, shown: Document | None) -> str:
    """The same of the pairs of a run that are not among those `shown` already."""
    return "No result is kept yet." if run is None else _said({**run, "rows": _new(run, shown)})


def _new(run: Document, shown: Document | None) -> list[Document]:
    known = set() if shown is None else {(each["source"], each["target"]) for each in shown["rows"]}
    return [each for each in run["rows"] if (each["source"], each["target"]) not in known]


def others(run: Document | None, shown: Document | None) -> str:
    """The same, shorter, for the pairs of a run that are not among those `shown` already."""
    if run is None:
        return "No result is kept yet."
    rows = _new(run, shown)
    head = ["source", "target", "mean cold, warm", "ratio", "half", "best so far after 10", "worst of all counts"]
    head.append("within 5 % (mean, worst)")
    return "\n\n".join([table(head, list(map(_brief, rows))), _said({**run, "rows": rows}), made(run)])


def transfer(run: Document | None) -> str:
    """A line for each ordered pair of spaces, the failures too; a sentence where no result is kept."""
    if run is None:
        return "No result is kept yet."
    counts = [f"best so far after {count}" for count in run["rows"][0]["best_so_far"]]
    head = ["source", "target", "source's optimum there", "median cold, warm", "ratio", "mean cold, warm", "ratio"]
    head += [
        "half (median, mean)",
        "mean unaided",
        "ratio to it",
        *counts,
        "worst of all counts",
        "within 5 % (mean, worst)",
    ]
    return "\n\n".join([table(head, [_row(each) for each in run["rows"]]), _said(run), made(run)])
