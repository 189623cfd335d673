"""The part of docs/method/kernels-cuda.md on few queries."""

from __future__ import annotations

from math import exp, log
from typing import Any

from benchmarks.markdown import table

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
    kept = [each for each in documents if each is not None]
    if not kept:
        return NONE
    problems = dict.fromkeys(row["problem"] for each in kept for row in each["shapes"])
    rows = [[problem, *(_cell(each, problem) for each in kept)] for problem in problems]
    note = (
        "Of cold caches: us of `decode`, the fastest of three points, and how many times as fast as which of torch's."
    )
    return "\n\n".join([table(["problem", *(each["device"] for each in kept)], rows), note, *map(_told, kept)])


def _cell(document: dict[str, Any], problem: str) -> str:
    """What a device's row of a problem says; nothing where it has none."""
    for row in document["shapes"]:
        if row["problem"] == problem:
            point, ratio = best(row, "cold")
            return f"{row['cold']['us'][point]['median']:.2f}, **{ratio:.3f}x** {row['cold']['baseline']}"
    return ""


def _told(document: dict[str, Any]) -> str:
    shapes = document["shapes"]
    means = " and ".join(f"{mean([best(row, state)[1] for row in shapes]):.3f}x {state}" for state in STATES)
    tried = sum(row["tried"] for row in shapes)
    return (
        f"{document['device']}: the geometric mean is {means}; of {tried} points {_wrong(shapes)}. Made by"
        f" `{document['command']}`, torch {document['torch']}."
    )


def _wrong(shapes: list[dict[str, Any]]) -> str:
    """How many points of all shapes gave wrong results."""
    return f"{sum(len(row['wrong']) for row in shapes)} were wrong"
