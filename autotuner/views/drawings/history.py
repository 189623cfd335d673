"""The best so far against the baseline, by trials and by time, with the band in which nothing is told apart."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from autotuner.store import ListedTrial
from autotuner.store.figures import Improvement
from autotuner.values.ratio import UNCONFIRMED, quoted, speedup_of
from autotuner.views.drawings.figure import Figure
from autotuner.views.drawings.links import Links
from autotuner.views.drawings.svg import Plot
from autotuner.views.figure_tables import history_table
from autotuner.views.snapshot import Snapshot
from autotuner.views.words import clock, kind, ratio

SIZE = (860.0, 320.0)
"""Pixels of a drawing."""
DOTS = 1500
"""Dots, at most: more would cover each other."""


class Timeline(NamedTuple):
    """Where trials lie on an axis: by their place in the order of ends, or by the time at which they ended."""

    key: str
    title: str
    name: str
    places: Sequence[float]
    label: Callable[[float], str]


def steps(snapshot: Snapshot) -> list[tuple[int, Improvement]]:
    """Every improvement of the search, with its place in the order of ends."""
    places = {trial.number: place for place, trial in enumerate(snapshot.trials)}
    return [(places[each.number], each) for each in snapshot.improvements if each.number in places]


def staircase(plot: Plot, found: Sequence[tuple[float, float]], end: float, class_: str) -> None:
    """A line through places and what was the best from there on, until a pixel."""
    path = "".join(f"H{plot.x(at):.1f}V{plot.y(speedup):.1f}" for at, speedup in found)
    if path:
        start = path[1:].replace("V", " ", 1)
        plot.svg.add("path", d=f"M{start}H{end:.1f}", class_=class_)


def history(snapshot: Snapshot, links: Links) -> tuple[Figure, ...]:
    """One figure by trials and one by time; nothing where there is no trial."""
    trials = snapshot.trials
    if not trials:
        return ()
    by_time = [(each.recorded_at - trials[0].recorded_at).total_seconds() for each in trials]
    axes = (
        Timeline(
            "trials", "Best so far, by trials", "variants tried", [*range(1, len(trials) + 1)], lambda at: f"{at:,.0f}"
        ),
        Timeline("time", "Best so far, by time", "since the first trial", by_time, clock),
    )
    return tuple(_figure(snapshot, links, axis) for axis in axes)


def _figure(snapshot: Snapshot, links: Links, axis: Timeline) -> Figure:
    trials, found = snapshot.trials, steps(snapshot)
    best = snapshot.best
    confirmed = None if best is None else best.confirmed
    high = max([1.02, *(each.speedup for _, each in found), *([confirmed.high] if confirmed is not None else [])])
    if not math.isfinite(high):
        high = max(each.speedup for _, each in found)
    low = min(0.9, found[0][1].speedup if found else 0.9)
    reach = 0.0, max(*axis.places, 1.0)
    plot = Plot.of(SIZE, f"{axis.title} against {snapshot.baseline}", reach, (low, high + 0.05 * high))
    svg, x, y = plot.svg, plot.x, plot.y
    top, bottom = y(1 + snapshot.tie), y(1 / (1 + snapshot.tie))
    svg.add("rect", x=x.start, y=top, width=x.end - x.start, height=max(2.0, bottom - top), class_="band")
    across: Literal["counts", "moments"] = "moments" if axis.key == "time" else "counts"
    plot.axes(axis.name, f"speedup over {snapshot.baseline}", axis.label, across=across)
    svg.line(x.start, y(1), x.end, y(1), "baseline")
    svg.text(x.end, y(1) - 5, f"{snapshot.baseline} = 1, with the A/A band", "tick halo", "end")
    _dots(plot, trials, axis.places)
    staircase(plot, [(axis.places[place], each.speedup) for place, each in found], x.end, "best")
    for place, each in found:
        title = f"trial {each.number}: {quoted(each.speedup, False)}"
        svg.add("circle", cx=x(axis.places[place]), cy=y(each.speedup), r=3.5, class_="mark measured", title=title)
    if confirmed is not None and best is not None:
        at = x.end - 6
        svg.line(at, y(confirmed.low), at, y(confirmed.high), "interval")
        title = f"trial {best.entry.number}, confirmed {ratio(confirmed.mid)}"
        svg.add("circle", cx=at, cy=y(confirmed.mid), r=5, class_="mark confirmed", title=title)
        svg.text(at - 10, y(confirmed.mid) + 26, f"confirmed {ratio(confirmed.mid)}", "label strong halo", "end")
    confirmed_of = {} if best is None or confirmed is None else {best.entry.number: confirmed}
    table = history_table(snapshot.improvements, confirmed_of, snapshot.name, links)
    note = (
        f"The line is the best estimate of the search so far, {UNCONFIRMED}. Dots are variants that passed the gate, as"
        " far as the axis reaches; strokes below it are rejects."
    )
    return Figure(f"best-{axis.key}", axis.title, note, svg.render(), table)


def _dots(plot: Plot, trials: Sequence[ListedTrial], places: Sequence[float]) -> None:
    """One a pixel and kind."""
    seen = set()
    ranked = [(place, each) for place, each in zip(places, trials, strict=True) if each.objective is not None]
    every = max(1, len(ranked) // DOTS)
    for place, each in ranked[::every]:
        assert each.objective is not None
        speedup = speedup_of(each.objective)
        key = round(plot.x(place)), round(plot.y(speedup)), kind(each)
        if plot.y.holds(speedup) and key not in seen:
            seen.add(key)
            plot.svg.add("circle", cx=plot.x(place), cy=plot.y(speedup), r=2.2, class_=f"dot {kind(each)}")
    rejected = {round(plot.x(place)) for place, each in zip(places, trials, strict=True) if each.objective is None}
    strokes = "".join(f"M{at} {plot.y.start + 1:.0f}v5" for at in sorted(rejected))
    if strokes:
        plot.svg.add("path", d=strokes, class_="strokes wrong")
