"""What a study has cost: seconds by verdict and stage, the pace, and what the baselines took at each start."""

from __future__ import annotations

from collections.abc import Sequence

from autotuner.store.figures import BaselineAt, Cost, StudyCosts
from autotuner.values.verdict import Verdict
from autotuner.views.drawings.figure import Figure
from autotuner.views.drawings.svg import Plot, Svg
from autotuner.views.figure_tables import baselines_table, costs_table
from autotuner.views.words import cut, micros, percent, span

WIDTH, LEFT, ROW = 860, 150, 30
MOST = 24
"""Rows of baselines that are drawn."""


def costs(found: StudyCosts) -> tuple[Figure, ...]:
    """Nothing before a trial was recorded."""
    if not found.by_verdict:
        return ()
    total = sum(each.seconds for each in found.by_verdict) or 1.0
    most = max(each.seconds for each in found.by_verdict) or 1.0
    svg = Svg(WIDTH, ROW * len(found.by_verdict) + 8, "Seconds of builders and devices by verdict")
    for place, each in enumerate(found.by_verdict):
        y = ROW * place + 6
        svg.text(LEFT - 12, y + 14, Verdict(each.verdict).words, "label", "end")
        at = float(LEFT)
        for look, seconds in _parts(each).items():
            length = (WIDTH - LEFT - 190) * seconds / most
            if length:
                svg.add("rect", x=at, y=y, width=length, height=18, class_=f"lane {look}", title=f"{span(seconds)}")
            at += length
        svg.text(at + 8, y + 14, f"{span(each.seconds)} ({percent(each.seconds / total, 1)})", "tick")
    note = "Time of builders and devices by how judging ended."
    table = costs_table(found)
    return (Figure("costs", "What it cost", " ".join([note, *table.notes]), svg.render(), table),)


def _parts(cost: Cost) -> dict[str, float]:
    return {"build": cost.build_s, "check": cost.check_s, "measure": cost.measure_s}


def baselines(found: Sequence[BaselineAt]) -> tuple[Figure, ...]:
    """A row a problem and baseline, a dot a start; nothing before the first start."""
    if not found:
        return ()
    first: dict[str, float] = {}
    for each in found:
        if each.pinned:
            first.setdefault(str(each.problem), each.median_us)
    lines = list(dict.fromkeys((str(each.problem), each.baseline) for each in found))[:MOST]
    reach = [each.median_us / first.get(str(each.problem), each.median_us) for each in found]
    plot = Plot.of(
        (WIDTH, ROW * len(lines) + 54),
        "What the baselines took at each start",
        (0.0, 1.06 * max(1.0, *reach)),
        (0, 1),
        (6, 24, 46, 300),
    )
    bottom = 8 + ROW * len(lines)
    for tick in plot.x.ticks(7):
        plot.svg.line(plot.x(tick), 6, plot.x(tick), bottom, "grid")
        plot.svg.text(plot.x(tick), bottom + 16, f"{tick:.4g}\N{MULTIPLICATION SIGN}", "tick", "middle")
    plot.svg.line(plot.x(1), 6, plot.x(1), bottom, "baseline")
    name = "time over that of the problem's fastest baseline at the first start"
    plot.svg.text((plot.x.start + plot.x.end) / 2, plot.svg.height - 6, name, "name", "middle")
    for place, (problem, baseline) in enumerate(lines):
        y = 6 + ROW * (place + 0.5)
        of = [each for each in found if (str(each.problem), each.baseline) == (problem, baseline)]
        if place == 0 or lines[place - 1][0] != problem:
            plot.svg.text(8, y + 4, cut(problem, 30))
        looks = "label strong" if any(each.pinned for each in of) else "label"
        plot.svg.text(plot.x.start - 12, y + 4, cut(baseline, 14), looks, "end")
        for each in of:
            title = f"{micros(each.median_us)} us on {each.host}"
            look = "wrong" if each.disturbed is not None else "confirmed" if each.pinned else "raced_out"
            at = plot.x(each.median_us / first.get(problem, each.median_us))
            plot.svg.mark(look, at, y, 4.5, title=title)
    note = "A dot for each start of a driver. Filled: the baseline that variants race against. A cross: the machine was"
    note += " disturbed."
    return (Figure("baselines", "Baselines at each start", note, plot.svg.render(), baselines_table(found)),)
