"""Two studies side by side: what each came to, where their best variants differ, and the variants of both."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from autotuner.store import ListedTrial
from autotuner.tuning.compared import comparison
from autotuner.values.ratio import quoted, speedup_of
from autotuner.views.drawings.answer import Card
from autotuner.views.drawings.figure import Figure, Panel, Part
from autotuner.views.drawings.history import overlaid
from autotuner.views.drawings.links import Links
from autotuner.views.drawings.svg import Plot, around
from autotuner.views.figure_tables import comparison_table
from autotuner.views.snapshot import Snapshot
from autotuner.views.table import Cell, Table, linked
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
    versions = _versions(a, b)
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


def _versions(a: Snapshot, b: Snapshot) -> list[tuple[str, str, str]]:
    """What differs between the environments of the last runs."""
    both = [each.sessions[-1].environment if each.sessions else {} for each in (a, b)]
    names = sorted({*both[0], *both[1]})
    return [(name, *(each.get(name, "-") for each in both)) for name in names if both[0].get(name) != both[1].get(name)]  # type: ignore[misc]


def _parameters(a: Snapshot, b: Snapshot) -> Table:
    points = [{} if each.best is None else each.best.outcome.variant.point for each in (a, b)]
    names = list(dict.fromkeys([*points[0], *points[1]]))
    rows = []
    for name in names:
        one, other = (str(each.get(name, "absent")) for each in points)
        rows.append((name, one, other, "" if one == other else "differs"))
    return Table.plain(("parameter", "A", "B", ""), tuple(rows))


def _shared(a: Snapshot, b: Snapshot, links: Links) -> Figure:
    ours = {each.variant: each for each in a.trials if each.objective is not None}
    pairs = [(ours[each.variant], each) for each in b.trials if each.objective is not None and each.variant in ours]
    found = [(_found(one), _found(other), one, other) for one, other in pairs]
    note = f"{len(found):,} variants were measured in both. On the line both found the same speedup."
    columns = ("trial of A", "trial of B", "A", "B", "B over A", "variant")
    if not found:
        return Figure("shared", "Variants of both", "No variant was measured in both.", None, Table.plain(columns, ()))
    reach = around([each for pair in found for each in pair[:2]])
    plot = Plot.of((520, 460), "Speedups of the variants of both studies", reach, reach)
    plot.axes("speedup in A", "speedup in B")
    plot.svg.line(plot.x.start, plot.y.start, plot.x.end, plot.y.end, "baseline")
    for one, other, first, second in found[:: max(1, len(found) // DOTS)]:
        title = f"A #{first.number} {ratio(one)}, B #{second.number} {ratio(other)}"
        plot.svg.add("circle", cx=plot.x(one), cy=plot.y(other), r=2.6, class_="dot measured", title=title)
    return Figure("shared", "Variants of both", note, plot.svg.render(), Table.plain(columns, _rows(a, b, found, links),
                  frozenset(range(5))))  # fmt: skip


def _found(trial: ListedTrial) -> float:
    return speedup_of(trial.objective or 0.0)


def _rows(
    a: Snapshot, b: Snapshot, found: Sequence[tuple[float, float, ListedTrial, ListedTrial]], links: Links
) -> tuple[tuple[Cell | str, ...], ...]:
    apart = sorted(found, key=lambda each: -abs(math.log(each[1] / each[0])))[:TABLE]
    return tuple(
        (
            linked(str(first.number), links.trial(a.name, first.number)),
            linked(str(second.number), links.trial(b.name, second.number)),
            ratio(one),
            ratio(other),
            percent(other / one - 1, 1),
            point(first.parameters),
        )
        for one, other, first, second in apart
    )
