"""The parts of docs/kernels-cuda.md on few queries, and on the kernels of version 1 of the ABI beside these."""

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
        f" {max(row['tried'] for row in document['shapes'])} that were tried; all of these were right. {made}"
    )


def old_and_new(document: dict[str, Any] | None) -> str:
    """How long dense problems take as kernels of version 2 of the ABI, relative to those of version 1."""
    if document is None:
        return NONE
    shapes = document["shapes"]
    rows = [[row["problem"], *(_ratio(row[state]["new_over_old"]) for state in STATES)] for row in shapes]
    means = [f"{mean([row[state]['new_over_old']['median'] for row in shapes]):.4f} {state}" for state in STATES]
    same = sum(row["same_bits"] for row in shapes)
    made = f"Made by `{document['command']}`: {document['device']}, torch {document['torch']}."
    return (
        f"{table(['problem', 'warm', 'cold'], rows)}\n\nThe geometric mean is {' and '.join(means)}; {same} of"
        f" {len(shapes)} give the same bits as before. {made}"
    )


def _ratio(found: dict[str, float]) -> str:
    return f"{found['median']:.3f} ({found['low']:.3f} to {found['high']:.3f})"
