"""Two studies side by side: what each came to, where their best variants differ, and the variants of both."""

from __future__ import annotations

import math
from typing import NamedTuple

from autotuner.store import ListedTrial
from autotuner.tuning.compared import comparison
from autotuner.values.ratio import quoted
from autotuner.values.variant import Value
from autotuner.views.drawings.answer import Card
from autotuner.views.drawings.figure import Figure, Panel, Part
from autotuner.views.drawings.history import overlaid
from autotuner.views.drawings.links import Links
from autotuner.views.drawings.svg import Plot, around
from autotuner.views.figure_tables import comparison_table
from autotuner.views.snapshot import Snapshot
from autotuner.views.table import Cell, Column, Table, linked
from autotuner.views.words import ends, percent, point, ratio

DOTS = 2000
TABLE = 40
"""Variants of both that the table has: those that disagree most."""


class SideBySide(NamedTuple):
    """The page."""

    cards: tuple[Card, ...]
    parts: tuple[Part, ...]


def compare(a: Snapshot, b: Snapshot, links: Links) -> SideBySide:
    """A speedup is over each study's own baseline, on its own device and problems."""
    sides, points = Panel("Side by side", _sides(a, b, links)), Panel("The variants to use", _parameters(a, b))
    cards = _card("A", a), _card("B", b), _both(a, b)
    return SideBySide(cards, (sides, overlaid((a, b), links), _shared(a, b, links), points))


def _card(side: str, snapshot: Snapshot) -> Card:
    best, device = snapshot.best, snapshot.record.device.name
    if best is None:
        return Card(f"{side}: {device}", "No answer yet", "none", ("Nothing was measured to its end.",))
    if best.confirmed is None:
        lines = (f"Trial {best.entry.number}, by the search", f"over its own {snapshot.baseline}")
        return Card(f"{side}: {device}", quoted(best.entry.speedup.mid, False), "none", lines)
    lines = (f"Trial {best.entry.number}, confirmed: {ends(best.confirmed)}", f"over its own {snapshot.baseline}")
    return Card(f"{side}: {device}", ratio(best.confirmed.mid), "good" if best.confirmed.low > 1 else "warn", lines)


def _both(a: Snapshot, b: Snapshot) -> Card:
    """What the variants of both say, one with the other."""
    found = comparison(a.store, a.name, b.name)
    table = comparison_table((a.name, b.name), found).shown()
    cells = zip(table.columns, table.rows[0].cells, strict=True)
    lines = tuple(f"{column.title}: {cell.text}" for column, cell in cells if cell.text)
    answer = "None shared" if found.speedup is None else quoted(found.speedup.mid, False)
    return Card("B, the second, over A, the first", answer, "none", lines)


def _sides(a: Snapshot, b: Snapshot, links: Links) -> Table:
    rows: list[tuple[Cell | str, ...]] = [
        ("study", *(linked(each.name, links.study(each.name)) for each in (a, b))),
        ("device", a.record.device.name, b.record.device.name),
        ("problems", *("; ".join(map(str, each.record.problems)) for each in (a, b))),
        ("cache", a.record.cache, b.record.cache),
        ("judged", f"{a.judged:,}", f"{b.judged:,}"),
        ("rejected", *(percent(sum(each.causes.values()) / max(1, each.judged), 1) for each in (a, b))),
        ("trial to use", *(_best(each, links) for each in (a, b))),
        ("speedup", _speedup(a), _speedup(b)),
        ("tie band", percent(a.tie, 2), percent(b.tie, 2)),
    ]
    # What differs between the environments of the last runs.
    one, other = (each.sessions[-1].environment if each.sessions else {} for each in (a, b))
    names = sorted(name for name in {*one, *other} if one.get(name) != other.get(name))
    versions = [(name, one.get(name, "-"), other.get(name, "-")) for name in names]
    return Table.plain(("", "A", "B"), (*rows, *versions))


def _best(snapshot: Snapshot, links: Links) -> Cell | str:
    if snapshot.best is None:
        return "none"
    number = snapshot.best.entry.number
    return linked(f"#{number}", links.trial(snapshot.name, number))


def _speedup(snapshot: Snapshot) -> str:
    best = snapshot.best
    if best is None:
        return "-"
    if best.confirmed is not None:
        return f"{ratio(best.confirmed.mid)} confirmed ({ends(best.confirmed)})"
    return f"{quoted(best.entry.speedup.mid, False)}, by the search ({ends(best.entry.speedup)})"


def _parameters(a: Snapshot, b: Snapshot) -> Table:
    points = [{} if each.best is None else each.best.outcome.variant.point for each in (a, b)]
    names = list(dict.fromkeys([*points[0], *points[1]]))
    rows = []
    for name in names:
        one, other = (str(each.get(name, "absent")) for each in points)
        rows.append((name, one, other, "" if one == other else "differs"))
    return Table.plain(("parameter", "A", "B", ""), tuple(rows))


class Pair(NamedTuple):
    """What two studies found of one variant: its trials, and their speedups by the searches."""

    a: ListedTrial
    b: ListedTrial
    one: float
    other: float


def _shared(a: Snapshot, b: Snapshot, links: Links) -> Figure:
    ours = {each.variant: (each, each.speedup.mid) for each in a.trials if each.speedup is not None}
    theirs = [(each, each.speedup.mid) for each in b.trials if each.speedup is not None and each.variant in ours]
    found = [Pair(ours[each.variant][0], each, ours[each.variant][1], other) for each, other in theirs]
    apart = sorted(found, key=lambda each: -abs(math.log(each.other / each.one)))[:TABLE]
    columns: list[Column[Pair]] = [
        Column("trial of A", int, of="a.number", reads=str, href=lambda e: links.trial(a.name, e.a.number)),
        Column("trial of B", int, of="b.number", reads=str, href=lambda e: links.trial(b.name, e.b.number)),
        Column("A", float, of="one", reads=ratio),
        Column("B", float, of="other", reads=ratio),
        Column("B over A", float, of=lambda e: e.other / e.one - 1, reads=lambda gain: percent(gain, 1)),
        Column("variant", dict[str, Value], of="a.parameters", reads=point),
    ]
    table = Table.of(columns, apart)
    if not found:
        return Figure("shared", "Variants of both", "No variant was measured in both.", None, table)
    reach = around([each for pair in found for each in (pair.one, pair.other)])
    plot = Plot.of((520, 460), "Speedups of the variants of both studies", reach, reach)
    plot.axes("speedup in A", "speedup in B")
    plot.svg.line(plot.x.start, plot.y.start, plot.x.end, plot.y.end, "baseline")
    for pair in found[:: max(1, len(found) // DOTS)]:
        title = f"A #{pair.a.number} {ratio(pair.one)}, B #{pair.b.number} {ratio(pair.other)}"
        plot.svg.add("circle", cx=plot.x(pair.one), cy=plot.y(pair.other), r=2.6, class_="dot measured", title=title)
    note = f"{len(found):,} variants were measured in both. On the line both found the same speedup."
    return Figure("shared", "Variants of both", note, plot.svg.render(), table)
