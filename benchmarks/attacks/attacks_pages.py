"""The table of attacks in docs/method/gate.md, from docs/results; benchmarks/pages.py writes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.attacks.catalogue import groups as catalogue
from benchmarks.gate.gate_pages import made_by
from benchmarks.markdown import table

GAINS = ("latency", "paid", "crown", "export")


def attacks(document: dict[str, Any], on_cuda: dict[str, Any]) -> str:
    """For each group how many attacks got what, on a CPU; of all the shares with intervals, there and on a GPU."""
    rows = [each for each in document["rows"] if each["judged"]]
    groups = {each["group"].partition("_")[0] for each in rows}
    head = ["attacks", "judged", "a latency", "one better than the honest variant's", "confirmed", "exported"]
    lines = [
        _line(group, [each for each in rows if each["group"].partition("_")[0] == group]) for group in sorted(groups)
    ]
    lines += [_whole("all", document), _whole(f"all, {on_cuda['device']}", on_cuda)]
    left = len(document["rows"]) - len(rows)
    disturbed = f" {left} more were disturbed, or not reached in the time." if left else ""
    held = {(each["group"], each["name"]) for each in document["rows"]}
    later = sum((group.name, each.name) not in held for group in catalogue("cpu") for each in group.attacks)
    disturbed += f" Not run: {later}." if later else ""
    named = [each["name"] for each in rows if each["paid"] or each["export"]]
    through = f" What got through: {', '.join(f'`{name}`' for name in named)}." if named else ""
    said = f"The last rows have the upper ends of exact 95 % intervals.{disturbed}{through}"
    more = max(0, len(document.get("commands", ())) - 1)
    parts = f" And by {more} more, which the file names." if more else ""
    return f"{table(head, lines)}\n\n{said} {made_by(document)}{parts}"


def _whole(name: str, document: dict[str, Any]) -> list[str]:
    """The line of all that were judged, with how large the shares may be."""
    name, judged, *counts = _line(name, [each for each in document["rows"] if each["judged"]])
    highs = [f"{document['shares'][gain]['high']:.1%}" for gain in GAINS]
    return [name, judged, *(f"{count}, up to {high}" for count, high in zip(counts, highs, strict=True))]


def _line(name: str, rows: Sequence[dict[str, Any]]) -> list[str]:
    return [name, str(len(rows)), *(str(sum(each[gain] for each in rows)) for gain in GAINS)]
