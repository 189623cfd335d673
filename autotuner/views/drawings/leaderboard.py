"""The leaderboard as a forest plot: confirmed intervals filled, search estimates hollow, ties shaded."""

import math
from collections.abc import Sequence

from markupsafe import Markup

from autotuner.tuning.finals.standings import Entry
from autotuner.values.ratio import Speedup, quoted
from autotuner.views.drawings.figure import Figure
from autotuner.views.drawings.links import Links
from autotuner.views.drawings.svg import Scale, Svg, around
from autotuner.views.leaderboard import leaderboard as leaderboard_table
from autotuner.views.snapshot import Snapshot
from autotuner.views.words import compared, cut, ratio

WIDTH, LEFT, ROW = 860, 330, 30
"""Pixels of the drawing, of the names in it, and of a row."""


def leaderboard(snapshot: Snapshot, links: Links, most: int = 30) -> Figure:
    """The first lines of the leaderboard."""
    entries = snapshot.board[:most]
    note = f"Speedup over {snapshot.baseline} with its 95 % interval. Filled: confirmed in the finals. Hollow: the"
    note += " search's own estimate, unconfirmed. Shaded: they tie for the lead."
    table = leaderboard_table(entries, snapshot.record, links)
    drawing = _forest(snapshot, links, entries) if entries else None
    return Figure("leaderboard", "Leaderboard", note, drawing, table, open=True)


def _forest(snapshot: Snapshot, links: Links, entries: Sequence[Entry]) -> Markup:
    found = [each for entry in entries for each in (entry.speedup, entry.confirmed) if each is not None]
    ends = [end for each in found for end in (each.low, each.mid, each.high) if 0 < end < math.inf]
    svg, bottom = Svg(WIDTH, ROW * len(entries) + 52, f"The {len(entries)} fastest variants"), ROW * len(entries) + 8
    x = Scale(*around([1.0, *ends]), LEFT, WIDTH - 24)
    for row in (row for row, entry in enumerate(entries) if entry.tied or entry.crowned):
        svg.add("rect", x=0, y=6 + ROW * row, width=WIDTH, height=ROW, class_="tied")
    for at in x.ticks(7):
        svg.line(x(at), 6, x(at), bottom, "grid")
        svg.text(x(at), bottom + 16, f"{at:.4g}\N{MULTIPLICATION SIGN}", "tick", "middle")
    svg.line(x(1), 6, x(1), bottom, "baseline")
    svg.text((x.start + x.end) / 2, svg.height - 8, f"speedup over {snapshot.baseline}", "name", "middle")
    for row, (entry, point) in enumerate(zip(entries, compared([e.variant.point for e in entries]).rows, strict=True)):
        y = 6 + ROW * (row + 0.5)
        svg.text(34, y + 4, f"{entry.rank}{'=' if entry.tied else ''}", "label strong", "end")

        def name(number: int = entry.number, point: str = point, y: float = y) -> None:
            svg.text(44, y + 4, f"#{number}", "label link")
            svg.text(96, y + 4, cut(point, 38), "tick")

        svg.link(links.trial(snapshot.name, entry.number), name)
        said = f"trial {entry.number}, by the search {quoted(entry.speedup.mid, False)}"
        _interval(svg, x, y + (6 if entry.confirmed else 0), entry.speedup, ("estimate", "estimate", 4.5), said)
        if entry.confirmed is not None:
            said = f"trial {entry.number}, confirmed {ratio(entry.confirmed.mid)}"
            _interval(svg, x, y - 5, entry.confirmed, ("interval", "confirmed", 5.0), said)
    return svg.render()


def _interval(svg: Svg, x: Scale, y: float, found: Speedup, look: tuple[str, str, float], title: str) -> None:
    """A mark with the interval around it, where that has ends. `look`: of the line, of the mark, and its size."""
    if found.bounded:
        svg.line(x(found.low), y, x(found.high), y, look[0])
    svg.add("circle", cx=x(found.mid), cy=y, r=look[2], class_=f"mark {look[1]}", title=title)
