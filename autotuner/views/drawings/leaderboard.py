"""The leaderboard as a forest plot: confirmed intervals filled, search estimates hollow, ties shaded."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autotuner.tuning.finals.standings import Entry
from autotuner.views.drawings.figure import Figure
from autotuner.views.drawings.links import Links
from autotuner.views.drawings.svg import Plot
from autotuner.views.leaderboard import leaderboard as leaderboard_table
from autotuner.views.points import compared
from autotuner.views.snapshot import Snapshot
from autotuner.views.words import cut, ratio

ROW, WIDTH, LEFT = 30, 860, 330
HALF, HALF_LEFT = 600, 240
"""For half a page: pixels of the drawing, and of the names in it."""


def leaderboard(snapshot: Snapshot, links: Links, most: int = 20, narrow: bool = False) -> Figure:
    """The first lines of the leaderboard. `narrow`: for half a page."""
    entries = snapshot.board[:most]
    note = f"Speedup over {snapshot.baseline} with its 95 % interval. Filled: confirmed in the finals. Hollow: the"
    note += " search's own estimate, which looks better than it is. Shaded: they tie for the lead."
    table = leaderboard_table(entries, snapshot.record, links)
    drawing = _forest(snapshot, links, entries, narrow).svg.render() if entries else None
    return Figure("leaderboard", "Leaderboard", note, drawing, table)


def _forest(snapshot: Snapshot, links: Links, entries: Sequence[Entry], narrow: bool) -> Plot:
    width, left = (HALF, HALF_LEFT) if narrow else (WIDTH, LEFT)
    reach = [1.0]
    for entry in entries:
        reach.append(entry.speedup.mid)
        both = (entry.speedup, entry.confirmed)
        reach += [end for each in both if each is not None for end in (each.low, each.high) if 0 < end < math.inf]
    room = 0.04 * (max(reach) - min(reach)) or 0.05
    height = ROW * len(entries) + 62
    plot = Plot.of(
        (width, height),
        f"The {len(entries)} fastest variants against {snapshot.baseline}",
        (min(reach) - room, max(reach) + room),
        (0, len(entries)),
        (10, 20, 48, left),
    )
    svg, x = plot.svg, plot.x
    points = compared([entry.variant.point for entry in entries]).rows
    for place, entry in enumerate(entries):
        y = 10 + ROW * place
        if entry.tied or entry.crowned:
            svg.add("rect", x=0, y=y, width=width, height=ROW, class_="tied")
    bottom = 14 + ROW * len(entries)
    for tick in x.ticks(6):
        svg.line(x(tick), 10, x(tick), bottom, "grid")
        svg.text(x(tick), bottom + 16, f"{tick:.4g}\N{MULTIPLICATION SIGN}", "tick", "middle")
    svg.line(x(1), 10, x(1), bottom, "baseline")
    svg.text(x(1), height - 8, snapshot.baseline, "name", "middle")
    for place, entry in enumerate(entries):
        middle = 10 + ROW * place + ROW / 2
        rank = f"{entry.rank}{'=' if entry.tied else ''}"
        short = points[place]
        svg.text(34, middle + 4, rank, "label strong", "end")

        def label(entry: Entry = entry, middle: float = middle, short: str = short) -> None:
            svg.text(44, middle + 4, f"#{entry.number}", "label link")
            svg.text(96, middle + 4, cut(short, 24 if narrow else 38), "tick")

        svg.link(links.trial(snapshot.name, entry.number), label)
        _interval(plot, middle + (6 if entry.confirmed else 0), entry.speedup.low, entry.speedup.high, "estimate")
        title = f"trial {entry.number}, search estimate {ratio(entry.speedup.mid)}"
        svg.add("circle", cx=x(entry.speedup.mid), cy=middle + (6 if entry.confirmed else 0), r=4.5,
                class_="mark estimate", title=title)  # fmt: skip
        if entry.confirmed is not None:
            _interval(plot, middle - 5, entry.confirmed.low, entry.confirmed.high, "interval")
            title = f"trial {entry.number}, confirmed {ratio(entry.confirmed.mid)}"
            svg.add("circle", cx=x(entry.confirmed.mid), cy=middle - 5, r=5, class_="mark confirmed", title=title)
    return plot


def _interval(plot: Plot, y: float, low: float, high: float, class_: str) -> None:
    if low > 0 and high < math.inf:
        plot.svg.line(plot.x(low), y, plot.x(high), y, class_)
