"""What a study has cost: seconds by verdict and stage, the pace, and what the baselines took at each start."""

from __future__ import annotations

from collections.abc import Sequence

from autotuner.store.figures import BaselineAt, StudyCosts
from autotuner.values.verdict import Verdict
from autotuner.views.drawings.charts import Bar, Strips, bars
from autotuner.views.drawings.figure import Figure
from autotuner.views.drawings.lanes import STAGE_KEY, STAGES
from autotuner.views.figure_tables import baselines_table, costs_table
from autotuner.views.words import micros, percent, span

MOST = 24
"""Rows of baselines that are drawn."""


def costs(found: StudyCosts) -> tuple[Figure, ...]:
    """Nothing before a trial was recorded."""
    if not found.by_verdict:
        return ()
    total = sum(each.seconds for each in found.by_verdict) or 1.0
    rows = []
    for each in found.by_verdict:
        parts = zip(STAGES, (each.build_s, each.check_s, each.measure_s), strict=True)
        text = f"{span(each.seconds)} ({percent(each.seconds / total, 1)})"
        rows.append(Bar(Verdict(each.verdict).words, tuple((f"lane {stage}", s) for stage, s in parts), text))
    drawing, table = bars("Seconds of builders and devices by verdict", rows), costs_table(found)
    note = " ".join(["Time of builders and devices by how judging ended.", *table.notes])
    return (Figure("costs", "What it cost", note, drawing, table, STAGE_KEY, open=True),)


def baselines(found: Sequence[BaselineAt]) -> tuple[Figure, ...]:
    """A row a problem and baseline, a dot a start; nothing before the first start."""
    if not found:
        return ()
    first: dict[str, float] = {}
    for each in found:
        if each.pinned:
            first.setdefault(str(each.problem), each.median_us)
    at = [each.median_us / first.get(str(each.problem), each.median_us) for each in found]
    lines = list(dict.fromkeys((str(each.problem), each.baseline) for each in found))[:MOST]
    drawing = Strips.of(
        "What the baselines took at each start",
        [f"{problem}: {baseline}" if len(first) > 1 else baseline for problem, baseline in lines],
        (0.0, 1.06 * max(1.0, *at)),
        "{:.4g}\N{MULTIPLICATION SIGN}",
        left=320 if len(first) > 1 else 190,
        rule=1,
        below="time over that of the problem's fastest baseline at the first start",
    )
    for place, each in zip(at, found, strict=True):
        if (line := (str(each.problem), each.baseline)) in lines:
            look = "confirmed" if each.pinned else "raced_out"
            drawing.dot(lines.index(line), place, look, f"{micros(each.median_us)} us on {each.host}", 4.5)
    note = "A dot for each start of a driver. Filled: the baseline that variants race against."
    drawn, table = drawing.plot.svg.render(), baselines_table(found)
    return (Figure("baselines", "Baselines at each start", note, drawn, table),)
