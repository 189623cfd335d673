"""The part of docs/kernels-cuda.md on few queries."""

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


def few_queries(document: dict[str, Any] | None) -> str:
    """Of each shape: the fastest backend, the fastest point, and the ratio."""
    if document is None:
        return NONE
    rows = []
    for row in document["shapes"]:
        cells = [row["problem"]]
        for state in STATES:
            point, ratio = best(row, state)
            us, baseline = row[state]["us"], row[state]["baseline"]
            cells += [f"{us[baseline]['median']:.2f} ({baseline})", f"{us[point]['median']:.2f}", f"**{ratio:.3f}x**"]
        rows.append(cells)
    head = ["problem", *(f"{state}: {what}" for state in STATES for what in ("backend, us", "decode, us", "speedup"))]
    means = {state: mean([best(row, state)[1] for row in document["shapes"]]) for state in STATES}
    said = " and ".join(f"{ratio:.3f}x {state}" for state, ratio in means.items())
    made = f"Made by `{document['command']}`: {document['device']}, torch {document['torch']}."
    return (
        f"{table(head, rows)}\n\nThe geometric mean is {said}. A row shows the fastest of the three points that were"
        f" timed to the end, of {min(row['tried'] for row in document['shapes'])} to"
        f" {max(row['tried'] for row in document['shapes'])} that were tried; {_wrong(document['shapes'])}. Speedups"
        f" are medians of the rounds' ratios.\n\n{made}"
    )


def _wrong(shapes: list[dict[str, Any]]) -> str:
    """How many points of all shapes gave wrong results."""
    wrong, tried = sum(len(row["wrong"]) for row in shapes), sum(row["tried"] for row in shapes)
    return f"of all {tried} together {wrong} were wrong"
