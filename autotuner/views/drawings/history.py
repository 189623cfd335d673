"""The best so far against the baseline, with the band in which nothing is told apart."""

import math
from collections.abc import Sequence

from autotuner.store import ListedTrial
from autotuner.values.ratio import UNCONFIRMED, quoted, speedup_of
from autotuner.views.drawings.figure import Figure
from autotuner.views.drawings.links import Links
from autotuner.views.drawings.svg import Plot
from autotuner.views.figure_tables import history_table
from autotuner.views.snapshot import Snapshot
from autotuner.views.words import kind, ratio

SIZE = (860.0, 320.0)
"""Pixels of a drawing."""
DOTS = 1500
"""Dots, at most: more would cover each other."""


def history(snapshot: Snapshot, links: Links) -> tuple[Figure, ...]:
    """One figure; nothing where there is no trial."""
    trials = snapshot.trials
    if not trials:
        return ()
    places = {trial.number: place for place, trial in enumerate(trials, start=1)}
    found = [(places[each.number], each) for each in snapshot.improvements if each.number in places]
    best = snapshot.best
    confirmed = None if best is None else best.confirmed
    high = max([1.02, *(each.speedup for _, each in found), *([confirmed.high] if confirmed is not None else [])])
    if not math.isfinite(high):
        high = max(each.speedup for _, each in found)
    low = min(0.9, found[0][1].speedup if found else 0.9)
    reach = 0.0, float(len(trials))
    plot = Plot.of(SIZE, f"Best so far against {snapshot.baseline}", reach, (low, high + 0.05 * high))
    svg, x, y = plot.svg, plot.x, plot.y
    top, bottom = y(1 + snapshot.tie), y(1 / (1 + snapshot.tie))
    svg.add("rect", x=x.start, y=top, width=x.end - x.start, height=max(2.0, bottom - top), class_="band")
    plot.axes("variants tried", f"speedup over {snapshot.baseline}")
    svg.line(x.start, y(1), x.end, y(1), "baseline")
    svg.text(x.end, y(1) - 5, f"{snapshot.baseline} = 1, with the A/A band", "tick halo", "end")
    _dots(plot, trials)
    path = "".join(f"H{x(place):.1f}V{y(each.speedup):.1f}" for place, each in found)
    if path:
        svg.add("path", d=f"M{path[1:].replace('V', ' ', 1)}H{x.end:.1f}", class_="best")
    for place, each in found:
        title = f"trial {each.number}: {quoted(each.speedup, False)}"
        svg.add("circle", cx=x(place), cy=y(each.speedup), r=3.5, class_="mark measured", title=title)
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
    return (Figure("best", "Best so far", note, svg.render(), table),)


def _dots(plot: Plot, trials: Sequence[ListedTrial]) -> None:
    """One a pixel and kind."""
    seen = set()
    ranked = [(place, each) for place, each in enumerate(trials, start=1) if each.objective is not None]
    every = max(1, len(ranked) // DOTS)
    for place, each in ranked[::every]:
        assert each.objective is not None
        speedup = speedup_of(each.objective)
        key = round(plot.x(place)), round(plot.y(speedup)), kind(each)
        if plot.y.holds(speedup) and key not in seen:
            seen.add(key)
            plot.svg.add("circle", cx=plot.x(place), cy=plot.y(speedup), r=2.2, class_=f"dot {kind(each)}")
    rejected = {round(plot.x(place)) for place, each in enumerate(trials, start=1) if each.objective is None}
    strokes = "".join(f"M{at} {plot.y.start + 1:.0f}v5" for at in sorted(rejected))
    if strokes:
        plot.svg.add("path", d=strokes, class_="strokes wrong")
