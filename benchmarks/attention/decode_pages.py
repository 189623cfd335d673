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
        f" {max(row['tried'] for row in document['shapes'])} that were tried; {_wrong(document['shapes'])}. Speedups"
        f" are medians of the rounds' ratios.\n\n{made}"
    )


def _wrong(shapes: list[dict[str, Any]]) -> str:
    """How many points of all shapes gave wrong results."""
    wrong, tried = sum(len(row["wrong"]) for row in shapes), sum(row["tried"] for row in shapes)
    return f"of all {tried} together {wrong} were wrong"


def old_and_new(*documents: dict[str, Any] | None) -> str:
    """How long dense problems take as kernels of version 2 of the ABI, relative to those of version 1: a table a run,
    and the slowest problem of all runs together."""
    kept = [each for each in documents if each is not None]
    if not kept:
        return NONE
    said = [_slowest(kept, state) for state in STATES]
    return "\n\n".join([*map(_of_a_run, kept), f"In all runs together the slowest are {' and '.join(said)}."])


def _slowest(documents: list[dict[str, Any]], state: str) -> str:
    """The problem with the greatest ratio, the geometric mean of the runs."""
    ratios: dict[str, list[float]] = {}
    for row in (row for each in documents for row in each["shapes"]):
        ratios.setdefault(row["problem"], []).append(row[state]["new_over_old"]["median"])
    problem, ratio = max(((name, mean(each)) for name, each in ratios.items()), key=lambda found: found[1])
    return f"{problem} at {ratio:.3f} {state}"


def _of_a_run(document: dict[str, Any]) -> str:
    shapes = document["shapes"]
    tuned = any("tuned_over_old" in row["warm"] for row in shapes)
    sides = ("new_over_old", "tuned_over_old") if tuned else ("new_over_old",)
    head = ["problem", *STATES, *(f"tuned, {state}" for state in STATES if tuned)]
    rows = [[row["problem"], *(_ratio(row[state].get(side)) for side in sides for state in STATES)] for row in shapes]
    means = [f"{mean([row[state]['new_over_old']['median'] for row in shapes]):.4f} {state}" for state in STATES]
    same = sum(row["same_bits"] for row in shapes)
    again = [
        row[state]["again_over_old"]["median"] for row in shapes for state in STATES if "again_over_old" in row[state]
    ]
    itself = f" Beside itself the old kernel is at {min(again):.3f} to {max(again):.3f}." if again else ""
    return (
        f"{document['device']}, torch {document['torch']}:\n\n{table(head, rows)}\n\nThe geometric mean is"
        f" {' and '.join(means)}; {same} of {len(shapes)} give the same bits as before. Ratios are"
        f" medians of the rounds', in brackets their quartiles.{itself} Made by `{document['command']}`."
    )


def _ratio(found: dict[str, float] | None) -> str:
    if found is None:
        return ""
    return f"{found['median']:.3f} ({found['low']:.3f} to {found['high']:.3f})"
