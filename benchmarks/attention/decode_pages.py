"""The part of docs/method/kernels-cuda.md on few queries."""

from __future__ import annotations

from math import exp, log
from typing import Any

from benchmarks.attention.cuda_pages import table

STATES = ("warm", "cold")
NONE = "Not measured yet."


def mean(ratios: list[float]) -> float:
    """Geometric."""
    return exp(sum(map(log, ratios)) / len(ratios))


def best(row: dict[str, Any], state: str) -> tuple[str, float]:
    """The fastest of the points that were timed to the end, and its speedup."""
    speedups = {point: each["median"] for point, each in row[state]["speedup"].items()}
    point = max(speedups, key=lambda each: speedups[each])
    return point, speedups[point]


def few_queries(*documents: dict[str, Any] | None) -> str:
    """Of each device and shape: the fastest backend, the fastest point, and the ratio."""
    kept = [_of_a_device(each) for each in documents if each is not None]
    if not kept:
        return NONE
    note = (
        "A row shows the fastest of the three points that were timed to the end. Speedups are medians of the rounds'"
        " ratios."
    )
    return "\n\n".join([*kept, note])


def _of_a_device(document: dict[str, Any]) -> str:
    rows, shapes = [], document["shapes"]
    for row in shapes:
        cells = [row["problem"]]
        point, ratio = best(row, "cold")
        us, baseline = row["cold"]["us"], row["cold"]["baseline"]
        cells += [f"{us[baseline]['median']:.2f} ({baseline})", f"{us[point]['median']:.2f}", f"**{ratio:.3f}x**"]
        rows.append(cells)
    head = ["problem, cold", "backend, us", "decode, us", "speedup"]
    means = " and ".join(f"{mean([best(row, state)[1] for row in shapes]):.3f}x {state}" for state in STATES)
    tried = [row["tried"] for row in shapes]
    return (
        f"{document['device']}, torch {document['torch']}:\n\n{table(head, rows)}\n\nThe geometric mean is {means}. Of"
        f" each problem {min(tried)} to {max(tried)} points were tried; {_wrong(shapes)}. Made by"
        f" `{document['command']}`."
    )


def _wrong(shapes: list[dict[str, Any]]) -> str:
    """How many points of all shapes gave wrong results."""
    wrong, tried = sum(len(row["wrong"]) for row in shapes), sum(row["tried"] for row in shapes)
    return f"of all {tried} together {wrong} were wrong"
