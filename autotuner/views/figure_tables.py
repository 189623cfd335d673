"""Tables of a study's figures: what it found when, what it cost, what it covered, what its baselines took."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from autotuner.store.figures import BaselineAt, Cost, Improvement, Pace, StudyCosts
from autotuner.tuning.compared import StudyComparison
from autotuner.tuning.covered import Coverage, Covered
from autotuner.tuning.finals.standings import Quoted
from autotuner.values.ratio import Speedup, quoted
from autotuner.values.variant import Value
from autotuner.values.verdict import Verdict
from autotuner.views.table import Column, Table, data, trial_column
from autotuner.views.words import micros, moment, percent, span

if TYPE_CHECKING:
    from autotuner.views.drawings.links import Links
    from autotuner.views.snapshot import Snapshot


def history_table(
    found: Sequence[Improvement],
    confirmed: Mapping[int, Speedup],
    study: str = "",
    links: Links | None = None,
) -> Table:
    """Each trial that was the best until then; `confirmed` by the trial's number."""
    note = "judged: variants until then. seconds: of all trials until then, on builders and devices."
    return Table.of(history_columns(confirmed, study, links), found, [note])


def history_columns(
    confirmed: Mapping[int, Speedup] | None = None, study: str = "", links: Links | None = None
) -> list[Column[Improvement]]:
    """A line of the history."""
    known = confirmed or {}

    def speedup(each: Improvement) -> float:
        return known[each.number].mid if each.number in known else each.speedup

    return [
        trial_column(lambda e: e.number, study, links),
        Column("at", datetime, "when it was recorded", head="when", reads=moment),
        Column("judged", int, "variants judged until then, this one included"),
        Column(
            "seconds",
            float,
            "that all trials until then took on devices and builders",
            reads=lambda seconds: f"{seconds:.0f}",
        ),
        Column(
            "speedup",
            float,
            "t_baseline / t_variant, of the finals or else of the search",
            speedup,
            text=lambda e: quoted(speedup(e), e.number in known),
        ),
        data("confirmed", bool, "that was confirmed by finals", lambda e: e.number in known),
    ]


def costs_table(found: StudyCosts) -> Table:
    """What trials of each verdict cost, by stage, and the pace."""
    total = sum(each.seconds for each in found.by_verdict) or 1.0
    return Table.of(cost_columns(total), found.by_verdict, [] if found.pace is None else [_pace(found.pace)])


def cost_columns(total: float = 1.0) -> list[Column[Cost]]:
    """What trials of a verdict cost; `total`: seconds of all."""
    return [
        Column("verdict", str, reads=lambda verdict: Verdict(verdict).words),
        Column("trials", int),
        Column("seconds", float, "of devices and builders", head="time", reads=span),
        Column("share", float, "of all", lambda e: e.seconds / total, "of all", lambda share: percent(share, 1)),
        Column("each_seconds", float, "of one trial", lambda e: e.seconds / e.trials, "each", span),
        Column("build_seconds", float, of=lambda e: e.build_s, head="build", reads=span),
        Column("gate_seconds", float, of=lambda e: e.check_s, head="gate", reads=span),
        Column("race_seconds", float, of=lambda e: e.measure_s, head="race", reads=span),
    ]


PACE: list[Column[Pace]] = [
    data("trials", int),
    data("active_s", float, "that its runs lasted"),
    data("trials_an_hour", float),
    data("last_trials_an_hour", float, "of the last 50 trials"),
    data("busy_share", float, "seconds of trials over seconds of runs; more than 1 on several devices"),
]
"""How fast a study is judged."""


def _pace(pace: Pace) -> str:
    return (
        f"{pace.trials_an_hour:,.0f} trials an hour while it was worked on, {pace.last_trials_an_hour:,.0f} of late."
        f" Builders and devices were busy for {percent(pace.busy_share)} of that time; several at once make more than"
        " 100 %."
    )


def coverage_table(found: Coverage) -> Table:
    """How much of the space was judged, and how often each value."""
    lines = [(name, each) for name, values in found.parameters.items() for each in values]
    share = "" if not found.points else f" ({percent(found.judged / found.points, 1)})"
    return Table.of(COVERAGE, lines, [f"{found.judged:,} of {found.points:,} valid points were judged{share}"])


COVERAGE: list[Column[tuple[str, Covered]]] = [
    Column("parameter", str, of=lambda e: e[0]),
    Column("value", Value, of=lambda e: e[1].value, reads=str),
    Column("points", int, "valid ones that have it", lambda e: e[1].points, "valid points"),
    Column("judged", int, of=lambda e: e[1].judged),
    Column("right", int, "with a latency", lambda e: e[1].right),
    Column(
        "best",
        float,
        "t_baseline / t_variant, of the finals or else of the search",
        lambda e: e[1].best_speedup,
        text=lambda e: "" if e[1].best_speedup is None else quoted(e[1].best_speedup, e[1].best_confirmed),
    ),
    data("best_confirmed", bool, "that was confirmed by finals", lambda e: e[1].best_confirmed),
]
"""How often a value of a parameter was judged."""


def baselines_table(found: Sequence[BaselineAt]) -> Table:
    """What each baseline took at each start of a driver."""
    return Table.of(BASELINES, found)


BASELINES: list[Column[BaselineAt]] = [
    Column("run", int, "number of the run that timed it", lambda e: e.session),
    Column("at", datetime, head="when", reads=moment),
    Column("host", str),
    Column("problem", str, of=lambda e: str(e.problem)),
    Column("baseline", str),
    Column("us", float, "of one forward, at calibration", lambda e: e.median_us, reads=micros),
    Column(
        "beside_us",
        float,
        "the mean beside its variants, where the study has one problem",
        head="us beside variants",
        reads=micros,
    ),
    Column(
        "pinned",
        bool,
        "it was the fastest, and variants were raced against it",
        head="",
        text=lambda e: "raced against" if e.pinned else "",
    ),
]
"""What a baseline took at a start of a driver."""


def comparison_table(
    names: tuple[str, str], found: StudyComparison, best: tuple[Quoted | None, Quoted | None] = (None, None)
) -> Table:
    """Two studies by the variants of both, by the searches; `best`: what the trial to use of each came to."""
    notes = [
        f"The trial to use of {name}: {quoted(each.speedup, each.confirmed)}{', confirmed' if each.confirmed else ''}."
        for name, each in zip(names, best, strict=True)
        if each is not None
    ]
    return Table.of(COMPARISON, [found], notes, title=lambda _: f"{names[1]}, the second, over {names[0]}, the first")


COMPARISON: list[Column[StudyComparison]] = [
    Column("shared", int, "variants with a latency in both", head="right in both"),
    Column("faster", int, "of them those with a larger speedup in the second", head="faster in the second"),
    Column(
        "speedup",
        Speedup,
        "geometric mean of speedup in the second over speedup in the first; null where they share none",
        head="speedup, by the searches",
        reads=lambda found: f"{quoted(found.mid, False)} [{found.low:.3f}, {found.high:.3f}]",
        none="no variant is right in both",
    ),
    Column(
        "variant_ratio",
        float,
        "geometric mean of microseconds in the second over the first",
        head="microseconds",
        reads=lambda found: f"{found:.3f} times those in the first",
    ),
    Column("only_right_in_first", int, "rejected in the second"),
    Column("only_right_in_second", int, "rejected in the first"),
]
"""What two studies say of the variants of both."""

FIGURES: Mapping[str, Callable[[Snapshot], Table]] = {
    "history": lambda of: history_table(of.improvements, of.confirmed),
    "costs": lambda of: costs_table(of.costs),
    "coverage": lambda of: coverage_table(of.coverage),
    "baselines": lambda of: baselines_table(of.baselines),
}
"""What a command or a program can ask of a study, by what they call it."""
