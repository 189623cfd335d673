"""How the sampler's settings were chosen, from the kept result of replay_choice.py, for docs/method/search.md."""

from __future__ import annotations

from typing import Any

from benchmarks.markdown import table

Document = dict[str, Any]


def _difference(difference: dict[str, float]) -> str:
    return f"{difference['p']:+.3f} ({difference['low']:+.3f} to {difference['high']:+.3f})"


def _in_flight(group: Document) -> str:
    return " and ".join(map(str, group["in_flight"]))


def brief(document: Document | None) -> str:
    """What the choice of the others was worth, a line for each number of points in flight."""
    if document is None:
        return "No result is kept yet."
    lines = []
    for group in document["choices"]:
        mean, difference = group["left_out_mean"]["p"], group["left_out_mean"]["difference"]
        now = f"{mean - difference['p']:.3f}"
        lines.append([_in_flight(group), str(len(group["left_out"])), now, f"{mean:.3f}", _difference(difference)])
    head = ["in flight", "spaces", "score as it is", "score as the other spaces choose", "difference (95 % interval)"]
    return table(head, lines)
