"""Tables of a study's figures: what it found when, what it cost, what it covered, what its baselines took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from autotuner.store.figures import BaselineAt, Cost, Costs, Improvement, Pace
from autotuner.tuning.compared import StudyComparison
from autotuner.tuning.covered import Coverage, Covered
from autotuner.tuning.standings import Quoted
from autotuner.values.ratio import Speedup
from autotuner.values.verdict import Verdict
from autotuner.views.table import Column, Table, trial_column
from autotuner.views.words import ESTIMATE, micros, moment, percent, quoted_words, ratio, span

if TYPE_CHECKING:
    from autotuner.views.drawings.links import Links


def history_table(
    found: Sequence[Improvement],
    confirmed: Mapping[int, Speedup],
    study: str = "",
    links: Links | None = None,
) -> Table:
    """Each trial that was the best until then; `confirmed` by the trial's number."""

    def speedup(each: Improvement) -> float:
        return confirmed[each.number].mid if each.number in confirmed else each.speedup

    columns: list[Column[Improvement]] = [
        trial_column(lambda e: e.number, study, links),
        Column("at", "when", lambda e: e.at, moment, right=False),
        Column("judged", "judged", lambda e: e.judged),
        Column("seconds", "seconds", lambda e: e.seconds, lambda seconds: f"{seconds:.0f}"),
        Column("speedup", "speedup", speedup, ratio, mark=lambda e: "" if e.number in confirmed else ESTIMATE),
    ]
    note = (
        f"{ESTIMATE} an estimate of the search, else confirmed by finals. judged: variants until then. seconds: of all"
        " trials until then, on builders and devices."
    )
    return Table.of(columns, found, [note])


def costs_table(found: Costs) -> Table:
    """What trials of each verdict cost, by stage, and the pace."""
    total = sum(each.seconds for each in found.by_verdict) or 1.0
    columns: list[Column[Cost]] = [
        Column("verdict", "verdict", lambda e: Verdict(e.verdict).words, right=False),
        Column("trials", "trials", lambda e: e.trials),
        Column("seconds", "time", lambda e: e.seconds, span),
        Column("share", "of all", lambda e: e.seconds / total, lambda share: percent(share, 1)),
        Column("each_seconds", "each", lambda e: e.seconds / e.trials, span),
        Column("build_seconds", "build", lambda e: e.build_s, span),
        Column("gate_seconds", "gate", lambda e: e.check_s, span),
        Column("race_seconds", "race", lambda e: e.measure_s, span),
    ]
    notes = [] if found.pace is None else [_pace(found.pace)]
    return Table.of(columns, found.by_verdict, notes)


def _pace(pace: Pace) -> str:
    return (
        f"{pace.trials_an_hour:,.0f} trials an hour while it was worked on, {pace.last_trials_an_hour:,.0f} of late."
        f" Builders and devices were busy for {percent(pace.busy_share)} of that time; several at once make more than"
        " 100 %."
    )


def coverage_table(found: Coverage) -> Table:
    """How much of the space was judged, and how often each value."""
    columns: list[Column[tuple[str, Covered]]] = [
        Column("parameter", "parameter", lambda e: e[0], right=False),
        Column("value", "value", lambda e: e[1].value, str, right=False),
        Column("points", "valid points", lambda e: e[1].points),
        Column("judged", "judged", lambda e: e[1].judged),
        Column("right", "right", lambda e: e[1].right),
        Column("best", "best", lambda e: e[1].best_speedup, ratio, mark=lambda e: "" if e[1].best_confirmed else "~"),
    ]
    lines = [(name, each) for name, values in found.parameters.items() for each in values]
    if not found.points:
        return Table.of(columns, lines, ["The space has no valid points."])
    share = percent(found.judged / found.points, 1)
    return Table.of(columns, lines, [f"{found.judged:,} of {found.points:,} valid points were judged ({share})"])


def baselines_table(found: Sequence[BaselineAt]) -> Table:
    """What each baseline took at each start of a driver."""
    columns: list[Column[BaselineAt]] = [
        Column("run", "run", lambda e: e.session),
        Column("at", "when", lambda e: e.at, moment, right=False),
        Column("host", "host", lambda e: e.host, right=False),
        Column("problem", "problem", lambda e: str(e.problem), right=False),
        Column("baseline", "baseline", lambda e: e.baseline, right=False),
        Column("us", "us", lambda e: e.median_us, micros),
        Column("beside_us", "us beside variants", lambda e: e.beside_us, micros),
        Column("said", "", lambda e: e.disturbed or ("raced against" if e.pinned else ""), right=False),
    ]
    return Table.of(columns, found)


def comparison_lines(
    names: tuple[str, str], found: StudyComparison, best: tuple[Quoted | None, Quoted | None]
) -> list[str]:
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
