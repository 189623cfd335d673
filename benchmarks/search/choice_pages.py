"""How the sampler's settings were chosen, from the kept result of replay_choice.py, for docs/method/search.md and
docs/results/search.md."""

from __future__ import annotations

from typing import Any

from benchmarks.attention.cuda_pages import table
from benchmarks.provenance import made

Document = dict[str, Any]


def _difference(difference: dict[str, float]) -> str:
    return f"{difference['p']:+.3f} ({difference['low']:+.3f} to {difference['high']:+.3f})"


def _in_flight(group: Document) -> str:
    return " and ".join(map(str, group["in_flight"]))


def left_out(document: Document) -> str:
    """What each space gets from the choice of the others."""
    head = ["in flight", "left out", "chosen by the others", "score", "as it is", "difference", "best in hindsight"]
    lines = []
    for group in document["choices"]:
        lines += [
            [
                _in_flight(group),
                row["space"],
                row["chosen"],
                f"{row['chosen_p']:.3f}",
                f"{row['as_it_is_p']:.3f}",
                _difference(row["difference"]),
                f"{row['best_in_hindsight']} {row['best_p']:.3f}",
            ]
            for row in group["left_out"]
        ]
        mean, difference = group["left_out_mean"]["p"], group["left_out_mean"]["difference"]
        as_it_is = f"{mean - difference['p']:.3f}"
        lines.append([_in_flight(group), "mean", "", f"**{mean:.3f}**", as_it_is, f"**{_difference(difference)}**", ""])
    return table(head, lines)


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


def part(document: Document | None) -> str:
    """The section of docs/results/search.md; without a result it says so."""
    if document is None:
        return "No result is kept yet."
    charged = "charged" if document["sampler_is_charged"] else "free"
    best = "; ".join(f"{group['chosen']} with {_in_flight(group)} in flight" for group in document["choices"])
    searches = f"{document['seeds']} searches of each candidate on each space, scored on the axis `{document['axis']}`"
    said = f"{searches}; the sampler's own time is {charged}. What spaces choose for one that had no part in it:"
    together = f"By all spaces together would be chosen: {best}. Among all candidates the best looks better than it is."
    source = made(document)
    if document["not_done"]:
        source += f" Not done in its time: {', '.join(document['not_done'])}."
    return "\n\n".join([said, left_out(document), together, source])
