"""Tables of a study's figures: what it found when, what it cost, what it covered, how it compares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from autotuner.store.figures import BaselineAt, Comparison, Costs, Improvement, Pace
from autotuner.tuning.covered import Coverage
from autotuner.tuning.standings import Quoted
from autotuner.values.ratio import Speedup
from autotuner.values.verdict import Verdict
from autotuner.views.table import ESTIMATE, new_table
from autotuner.views.words import quoted_words


def history_table(found: Sequence[Improvement], confirmed: Mapping[int, Speedup]) -> RenderableType:
    """Each trial that was the best until then; `confirmed` by the trial's number."""
    table = new_table("trial", "when", "judged", "seconds", "speedup", right=(0, 2, 3, 4))
    for each in found:
        known = confirmed.get(each.number)
        speedup = quoted_words(each.speedup if known is None else known.mid, known is not None)
        seconds = f"{each.seconds:.0f}"
        table.add_row(str(each.number), f"{each.at:%Y-%m-%d %H:%M:%S} UTC", str(each.judged), seconds, speedup)
    note = (
        f"{ESTIMATE} an estimate of the search, else confirmed by finals. judged: variants until then. seconds: of all"
    )
    note += " trials until then, on builders and devices."
    return Group(table, Text(note, style="dim"))


def costs_table(found: Costs) -> RenderableType:
    """What trials of each verdict cost, by stage, and the pace."""
    table = new_table("verdict", "trials", "seconds", "share", "build", "gate", "timing", right=(1, 2, 3, 4, 5, 6))
    total = sum(each.seconds for each in found.by_verdict) or 1.0
    for each in found.by_verdict:
        stages = (f"{seconds:.1f}" for seconds in (each.build_s, each.check_s, each.measure_s))
        share = f"{each.seconds / total:.0%}"
        table.add_row(Verdict(each.verdict).words, str(each.trials), f"{each.seconds:.1f}", share, *stages)
    return Group(table, Text(_pace(found.pace))) if found.pace is not None else table


def _pace(pace: Pace) -> str:
    return (
        f"{pace.trials_an_hour:.0f} trials an hour while a driver was at it, {pace.last_trials_an_hour:.0f} of late;"
        f" devices and builders were busy {pace.busy_share:.0%} of that time"
    )


def coverage_table(found: Coverage) -> RenderableType:
    """How much of the space was judged, and how often each value."""
    table = new_table("parameter", "value", "points", "judged", "right", "best", right=(2, 3, 4, 5))
    for name, values in found.parameters.items():
        for each in values:
            best = "" if each.best_speedup is None else quoted_words(each.best_speedup, each.best_confirmed)
            row = str(each.value), f"{each.points:,}", str(each.judged), str(each.right), best
            table.add_row(name, *row)
    head = f"{found.judged:,} of {found.points:,} valid points judged ({found.judged / found.points:.1%})"
    return Group(Text(head), table)


def comparison_lines(names: tuple[str, str], found: Comparison, best: tuple[Quoted | None, Quoted | None]) -> list[str]:
    """Two studies, in some lines: the variants of both by the searches, and the trial to use of each."""
    first, second = names
    if found.speedup is None or found.variant_ratio is None:
        lines = [f"{first} and {second} share no variant that is right in both."]
    else:
        lines = [
            f"{found.shared} variants are right in both; of them {found.faster} have the larger speedup in {second}.",
            f"Speedup in {second} over that in {first}, by the searches: {ESTIMATE}{found.speedup.mid:.3f}"
            f" [{found.speedup.low:.3f}, {found.speedup.high:.3f}]; microseconds: {found.variant_ratio:.3f}.",
        ]
    for name, each in zip(names, best, strict=True):
        if each is not None:
            how = "confirmed by finals" if each.confirmed else "by the search"
            lines.append(f"The trial to use of {name}: {quoted_words(each.speedup, each.confirmed)}, {how}.")
    wrong = (found.only_right_in_first, second), (found.only_right_in_second, first)
    return lines + [f"{count} right in the other are rejected in {name}." for count, name in wrong if count]


def baselines_table(found: Sequence[BaselineAt]) -> RenderableType:
    """What each baseline took over time."""
    columns = ("when", "host", "problem", "baseline", "us", "beside variants", "")
    table = new_table(*columns, right=(4, 5))
    for each in found:
        beside = "" if each.beside_us is None else f"{each.beside_us:.1f}"
        note = "disturbed" if each.disturbed is not None else "pinned" if each.pinned else ""
        when = f"{each.at:%Y-%m-%d %H:%M:%S} UTC"
        table.add_row(when, each.host, str(each.problem), each.baseline, f"{each.median_us:.1f}", beside, note)
    return table
