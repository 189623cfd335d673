"""The part of docs/method/kernels-cuda.md on the kernels of an earlier commit beside these."""

from __future__ import annotations

from collections import Counter
from typing import Any

from benchmarks.attention.decode_pages import NONE, STATES, mean

OLD, NEW = "old", "new"
"""The first word of the names of a side's graphs."""
LOST = 1.01
"""Above this a kernel counts as slower than before."""


def old_and_new(*documents: dict[str, Any] | None) -> str:
    """How long kernels take, relative to those of an earlier commit, in words."""
    kept = [each for each in documents if each is not None]
    if not kept:
        return NONE
    return "\n\n".join([*map(_of_a_run, kept), _together(kept)])


def medians(state: dict[str, Any], side: str) -> list[float]:
    """Microseconds of each graph of a side."""
    return [us["median"] for name, us in state["us"].items() if name.split()[0] == side]


def over(state: dict[str, Any]) -> float:
    """Microseconds of the new side over those of the old one: each the geometric mean of its graphs, so that what the
    control is off by is taken out."""
    return mean(medians(state, NEW)) / mean(medians(state, OLD))


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
    means = [f"{mean([over(row[state]) for row in shapes]):.4f} {state}" for state in STATES]
    same = sum(row["same_bits"] for row in shapes)
    reasons = Counter((each["impl"], each["reason"]) for each in document["left_out"])
    out = [f" Left out: {count} of {impl}: {reason}." for (impl, reason), count in reasons.items()]
    return (
        f"{document['device']}, torch {document['torch']}: of the times of {len(shapes)} kernels, new over old, the"
        f" geometric mean is {' and '.join(means)}; {same} of {len(shapes)} give the same bits as before.{''.join(out)}"
        f" Made by `{document['command']}`."
    )


def _together(documents: list[dict[str, Any]]) -> str:
    """What the rows of all runs decide, and the slowest of them."""
    states = [(_name(row), row[state], state) for each in documents for row in each["shapes"] for state in STATES]
    sure = [(name, over(found), state) for name, found, state in states if decides(found)]
    slower = sum(ratio > LOST for _, ratio, _ in sure)
    said = [_slowest(states, state) for state in STATES]
    return (
        f"A run cannot decide within {100 * (LOST - 1):.0f} % on {len(states) - len(sure)} of {len(states)} ratios,"
        f" as the graphs of one kernel lie farther from each other. Of the others {slower} are above {LOST}."
        f" The slowest are {' and '.join(said)}."
    )


def _slowest(states: list[tuple[str, dict[str, Any], str]], wanted: str) -> str:
    """The problem with the greatest ratio, the geometric mean of the runs."""
    ratios: dict[str, list[float]] = {}
    for name, found, state in states:
        if state == wanted:
            ratios.setdefault(name, []).append(over(found))
    problem, ratio = max(((name, mean(each)) for name, each in ratios.items()), key=lambda found: found[1])
    return f"{problem} at {ratio:.3f} {wanted}"
