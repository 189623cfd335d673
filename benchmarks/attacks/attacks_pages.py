"""The table of attacks in docs/method/gate.md, from docs/results; benchmarks/pages.py writes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.attacks.catalogue import groups as catalogue
from benchmarks.gate.gate_pages import made_by
from benchmarks.markdown import table

GAINS = ("latency", "paid", "crown", "export")


def attacks(document: dict[str, Any]) -> str:
    """For each group how many attacks got what, and the shares of all with their intervals; CPU."""
    rows = [each for each in document["rows"] if each["judged"]]
    groups = {each["group"].partition("_")[0] for each in rows}
    head = ["attacks", "judged", "a latency", "one better than the honest variant's", "confirmed", "exported"]
    lines = [
        _line(group, [each for each in rows if each["group"].partition("_")[0] == group]) for group in sorted(groups)
    ]
    low_high = [f"up to {document['shares'][gain]['high']:.1%}" for gain in GAINS]
    whole = _line("all", rows)
    lines.append([*whole[:2], *(f"{count}, {span}" for count, span in zip(whole[2:], low_high, strict=True))])
    left = len(document["rows"]) - len(rows)
    disturbed = f" {left} more were disturbed, or not reached in the time." if left else ""
    missing = [group.name for group in catalogue("cpu") if all(each["group"] != group.name for each in rows)]
    disturbed += f" Not run: {', '.join(f'`{name}`' for name in missing)}." if missing else ""
    named = [each["name"] for each in rows if each["paid"] or each["export"]]
    through = f" What got through: {', '.join(f'`{name}`' for name in named)}." if named else ""
    said = f"The last row has the upper ends of exact 95 % intervals.{disturbed}{through}"
    more = max(0, len(document.get("commands", ())) - 1)
    parts = f" And by {more} more, which the file names, on the same machine." if more else ""
    return f"{table(head, lines)}\n\n{said} {made_by(document)}{parts}"


def _line(name: str, rows: Sequence[dict[str, Any]]) -> list[str]:
    return [name, str(len(rows)), *(str(sum(each[gain] for each in rows)) for gain in GAINS)]
