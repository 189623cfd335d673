"""The part of docs/method/kernels-fp8.md on times and errors."""

from __future__ import annotations

from statistics import geometric_mean
from typing import Any

from benchmarks.markdown import table

FA3 = "fa3_fp8"
OTHERS = (FA3, "cudnn bfloat16")
OURS = "wgmma bfloat16"
OTHER_DECODES = ("decode on bfloat16", "FlashAttention 3 in FP8", "FlashInfer in FP8 (one descale)")
WORST = 1.2
"""Errors that a point may have, relative to FlashAttention 3's."""
ELEMENTS = " float8_e4m3fn bfloat16"


def on_grid(document: dict[str, Any]) -> float:
    """How many times as long FlashAttention 3 takes in the geometric mean over its grid, each beside the fastest point;
    0 where that was not measured."""
    ratios = []
    for us in (row["us"] for row in document.get("grid", []) if FA3 in row["us"]):
        ratios.append(us[FA3] / min(us[name] for name in us if name not in (*OTHERS, OURS)))
    return geometric_mean(ratios) if ratios else 0.0


def measured(document: dict[str, Any] | None, decode: dict[str, Any] | None = None) -> str:
    """Of each problem the fastest point within WORST, of all where none is, beside FlashAttention 3's FP8 and cuDNN in
    bfloat16, and its largest error; of `decode` what the others take."""
    if document is None:
        return "Not measured yet."
    rows = []

    def worst_of(name: str) -> float:
        return max(float(each[name]) / float(each[FA3]) for each in document["errors"])

    for row in document["times"]:
        us = row["us"]
        points = [name for name in us if name not in (*OTHERS, OURS)]
        best = min([name for name in points if worst_of(name) <= WORST] or points, key=lambda name: us[name])
        ratios = [f"{us[name]:.0f}, **{us[name] / us[best]:.2f}x**" for name in OTHERS if name in us]
        rows.append([row["problem"].replace(ELEMENTS, ""), f"{us[best]:.0f}", *ratios, f"{worst_of(best):.2f}"])
    head = ["problem", "us", "FlashAttention 3 in FP8", "cuDNN in bfloat16", "error"]
    note = (
        "The others' us, and how many times as long. Error: the largest relative to FlashAttention 3's over"
        f" {len(document['errors'])} kinds of inputs."
    )
    if on_grid(document):
        note += f" Over its grid's {len(document['grid'])} problems, {on_grid(document):.2f} times as long."
    made = f"Made by `{document['command']}` on {document['when'][:10]}."
    found = f"{table(head, rows)}\n\n{note} {document['device']}, torch {document['torch']}. {made}"
    return found if decode is None else f"{found}\n\n{decoded(decode)}"


def decoded(document: dict[str, Any]) -> str:
    """Of each shape the microseconds on a cache in FP8, and how many times as long OTHER_DECODES take."""
    lines = []
    for row in document["rows"]:
        ours = next(us["median"] for name, us in row["us"].items() if name not in row["speedup"])
        others = ", ".join(f"{row['speedup'][name]['median']:.2f}x" for name in OTHER_DECODES if name in row["speedup"])
        lines.append(f"- {row['problem']}: {ours:.0f} us; {others}")
    *them, last = [name for name in OTHER_DECODES if all(name in row["speedup"] for row in document["rows"])]
    head = f"`decode` on an FP8 cache; {', '.join(them)} and {last} take:"
    return "\n".join([head, "", *lines, "", f"{document['device']}; made by `{document['command']}`."])
