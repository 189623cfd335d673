"""The leaderboard as a forest plot: confirmed intervals filled, search estimates hollow, ties shaded."""

from __future__ import annotations

import math

from autotuner.values.ratio import quoted
from autotuner.views.drawings.charts import WIDTH, Strips
from autotuner.views.drawings.figure import Figure
from autotuner.views.drawings.links import Links
from autotuner.views.drawings.svg import around
from autotuner.views.leaderboard import leaderboard as leaderboard_table
from autotuner.views.snapshot import Snapshot
from autotuner.views.words import compared, cut, ratio

LEFT = 330
HALF, HALF_LEFT = 600, 240
"""For half a page: pixels of the drawing, and of the names in it."""


def leaderboard(snapshot: Snapshot, links: Links, most: int = 30, narrow: bool = False) -> Figure:
    """The first lines of the leaderboard. `narrow`: for half a page."""
    entries = snapshot.board[:most]
    note = f"Speedup over {snapshot.baseline} with its 95 % interval. Filled: confirmed in the finals. Hollow: the"
    note += " search's own estimate, unconfirmed. Shaded: they tie for the lead."
    table = leaderboard_table(entries, snapshot.record, links)
    drawing = _forest(snapshot, links, most, narrow).plot.svg.render() if entries else None
    return Figure("leaderboard", "Leaderboard", note, drawing, table, open=not narrow)


def _forest(snapshot: Snapshot, links: Links, most: int, narrow: bool) -> Strips:
    entries, (width, left) = snapshot.board[:most], (HALF, HALF_LEFT) if narrow else (WIDTH, LEFT)
    found = [each for entry in entries for each in (entry.speedup, entry.confirmed) if each is not None]
    ends = [end for each in found for end in (each.low, each.mid, each.high) if 0 < end < math.inf]
    label = f"The {len(entries)} fastest variants against {snapshot.baseline}"
    names, tick = [""] * len(entries), "{:.4g}\N{MULTIPLICATION SIGN}"
    shaded = [row for row, entry in enumerate(entries) if entry.tied or entry.crowned]
    reach, below = around([1.0, *ends]), f"speedup over {snapshot.baseline}"
    forest = Strips.of(label, names, reach, tick, left, width, rule=1, below=below, shaded=shaded)
    svg = forest.plot.svg
    for row, (entry, point) in enumerate(zip(entries, compared([e.variant.point for e in entries]).rows, strict=True)):
        y = forest.middles[row]
        svg.text(34, y + 4, f"{entry.rank}{'=' if entry.tied else ''}", "label strong", "end")

        def name(number: int = entry.number, point: str = point, y: float = y) -> None:
            svg.text(44, y + 4, f"#{number}", "label link")
            svg.text(96, y + 4, cut(point, 24 if narrow else 38), "tick")

        svg.link(links.trial(snapshot.name, entry.number), name)
        lower = 6 if entry.confirmed else 0
        forest.interval(row, entry.speedup.low, entry.speedup.high, "estimate", lower)
        title = f"trial {entry.number}, by the search {quoted(entry.speedup.mid, False)}"
        forest.dot(row, entry.speedup.mid, "estimate", title, 4.5, lower)
        if entry.confirmed is not None:
            forest.interval(row, entry.confirmed.low, entry.confirmed.high, "interval", -5)
            title = f"trial {entry.number}, confirmed {ratio(entry.confirmed.mid)}"
            forest.dot(row, entry.confirmed.mid, "confirmed", title, 5, -5)
    return forest
