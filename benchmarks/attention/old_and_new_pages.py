"""The part of docs/kernels-cuda.md on the kernels of version 1 of the ABI beside these."""

from __future__ import annotations

from typing import Any

from benchmarks.attention.cuda_pages import table
from benchmarks.attention.decode_pages import NONE, STATES, mean

OLD, NEW, TUNED = ("old", "again"), ("new",), ("tuned",)
"""The first words of the names of a side's graphs."""
LOST = 1.01
"""Above this a kernel counts as slower than before."""


def old_and_new(*documents: dict[str, Any] | None) -> str:
    """How long dense problems take as kernels of version 2 of the ABI, relative to those of version 1: a table a run,
    and what all runs together decide."""
    kept = [each for each in documents if each is not None]
    if not kept:
        return NONE
    return "\n\n".join([*map(_of_a_run, kept), _together(kept)])


def medians(state: dict[str, Any], side: tuple[str, ...]) -> list[float]:
    """Microseconds of each graph of a side."""
    return [us["median"] for name, us in state["us"].items() if name.split()[0] in side]


def over(state: dict[str, Any], side: tuple[str, ...] = NEW) -> float:
    """Microseconds of a side over those of the old one: each the geometric mean of its graphs, so that what the control
    is off by is taken out."""
    return mean(medians(state, side)) / mean(medians(state, OLD))


def apart(state: dict[str, Any]) -> float:
    """How far the graphs of one kernel lie from each other: the slowest over the fastest, of the side where that is
    more. 1 where there is one of each: then nothing is known of it."""
    return max(max(each) / min(each) for side in (OLD, NEW) if (each := medians(state, side)))


def decides(state: dict[str, Any]) -> bool:
    """Whether a run can tell a kernel that is slower from one that is not: the graphs of one kernel lie no farther from
    each other."""
    return len(medians(state, OLD)) > 1 and apart(state) <= LOST


def _name(row: dict[str, Any]) -> str:
    return f"{row['problem']}, {row['impl']}"


def _of_a_run(document: dict[str, Any]) -> str:
    shapes = document["shapes"]
    tuned = any(medians(row["warm"], TUNED) for row in shapes)
    head = ["problem", *(f"{state}{what}" for state in STATES for what in ("", ": one kernel's graphs"))]
    rows = [[_name(row), *(cell for state in STATES for cell in _cells(row[state]))] for row in shapes]
    if tuned:
        head += [f"tuned, {state}" for state in STATES]
        for cells, row in zip(rows, shapes, strict=True):
            cells += [_ratio(row[state], TUNED) if medians(row[state], TUNED) else "" for state in STATES]
    means = [f"{mean([over(row[state]) for row in shapes]):.4f} {state}" for state in STATES]
    same = sum(row["same_bits"] for row in shapes)
    out = [
        f" Left out: {each['impl']} at {each['problem']}: {each['reason']}." for each in document.get("left_out", ())
    ]
    return (
        f"{document['device']}, torch {document['torch']}:\n\n{table(head, rows)}\n\nThe geometric mean is"
        f" {' and '.join(means)}; {same} of {len(shapes)} give the same bits as before.{''.join(out)} Made by"
        f" `{document['command']}`."
    )


def _cells(state: dict[str, Any]) -> list[str]:
    spread = f"{100 * (apart(state) - 1):.1f} %" if len(medians(state, OLD)) > 1 else "not measured"
    return [_ratio(state, NEW), spread]


def _ratio(state: dict[str, Any], side: tuple[str, ...]) -> str:
    said = f"{over(state, side):.3f}"
    return said if decides(state) else f"({said})"


def _together(documents: list[dict[str, Any]]) -> str:
    """What the rows of all runs decide, and the slowest of them."""
    states = [(_name(row), row[state], state) for each in documents for row in each["shapes"] for state in STATES]
    sure = [(name, over(found), state) for name, found, state in states if decides(found)]
    slower = [f"{name} at {ratio:.3f} {state}" for name, ratio, state in sure if ratio > LOST]
    said = [_slowest(states, state) for state in STATES]
    return (
        f"Ratios are of the medians of the rounds, each side's the geometric mean of its graphs. In brackets is what a"
        f" run cannot decide within {100 * (LOST - 1):.0f} %, as the graphs of one kernel lie farther from each other:"
        f" {len(states) - len(sure)} of {len(states)}. Of the others {len(slower)} are above {LOST}"
        f"{': ' + ', '.join(slower) if slower else ''}. In all runs together the slowest are {' and '.join(said)}."
    )


def _slowest(states: list[tuple[str, dict[str, Any], str]], wanted: str) -> str:
    """The problem with the greatest ratio, the geometric mean of the runs."""
    ratios: dict[str, list[float]] = {}
    for name, found, state in states:
        if state == wanted:
            ratios.setdefault(name, []).append(over(found))
    problem, ratio = max(((name, mean(each)) for name, each in ratios.items()), key=lambda found: found[1])
    return f"{problem} at {ratio:.3f} {wanted}"


def same_code(document: dict[str, Any] | None) -> str:
    """How many points of each implementation compile to the machine code that they had; nothing where nothing is
    kept."""
    if document is None:
        return NONE
    built = [row for row in document["rows"] if row["same_code"] is not None]
    by_impl: dict[str, list[bool]] = {}
    for row in built:
        by_impl.setdefault(row["impl"], []).append(row["same_code"])
    counts = ", ".join(f"{sum(each)} of {len(each)} of `{impl}`" for impl, each in by_impl.items())
    return (
        f"For {document['architecture']} the fastest points at these shapes are, to the byte, the machine code that"
        f" they were: {counts}. Made by `{document['command']}`."
    )
