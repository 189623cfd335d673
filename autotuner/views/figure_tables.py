"""Tables of a study's figures: what it found when, what it cost, how two studies compare, such as those of two devices
or two versions of a compiler, and what each problem takes."""

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, median_high

from pydantic import Field

from autotuner.race.statistics import normal_interval
from autotuner.store import Store, figures
from autotuner.store.figures import Cost, Improvement, Pace, StudyCosts
from autotuner.tuning.finals.standings import Quoted
from autotuner.values.model import Model
from autotuner.values.ratio import Speedup, quoted
from autotuner.values.verdict import Verdict
from autotuner.views.drawings.links import LINKS, Links
from autotuner.views.snapshot import Snapshot
from autotuner.views.table import Column, Fields, Table, data, trial_column
from autotuner.views.words import micros, moment, percent, span


class StudyComparison(Model):
    """What two studies say of the variants of both."""

    shared: int = Field(description="variants with a latency in both")
    faster: int = Field(description="of them those with a larger speedup in the second")
    speedup: Speedup | None = Field(
        description="geometric mean of speedup in the second over speedup in the first; null where they share none"
    )
    variant_ratio: float | None = Field(description="geometric mean of microseconds in the second over the first")
    only_right_in_first: int = Field(description="rejected in the second")
    only_right_in_second: int = Field(description="rejected in the first")


def comparison(store: Store, first: str, second: str) -> StudyComparison:
    """Compares the second study with the first. Raises StoreError."""
    pairs = figures.in_both(store, first, second)
    right = [(one, other) for one, other in pairs if one is not None and other is not None]
    gains = [other[0] - one[0] for one, other in right]
    return StudyComparison(
        shared=len(right),
        faster=sum(gain < 0 for gain in gains),
        speedup=normal_interval(gains).speedup if gains else None,
        variant_ratio=math.exp(fmean(math.log(other[1] / one[1]) for one, other in right)) if right else None,
        only_right_in_first=sum(one is not None and other is None for one, other in pairs),
        only_right_in_second=sum(one is None and other is not None for one, other in pairs),
    )


OF_EITHER = "t_baseline / t_variant, of the finals or else of the search"


def history_table(
    found: Sequence[Improvement], confirmed: Mapping[int, Speedup], study: str = "", links: Links = LINKS
) -> Table:
    """Each trial that was the best until then; `confirmed` by the trial's number."""
    note = "judged: variants until then. seconds: of all trials until then, on builders and devices."
    return Table.of(history_columns(confirmed, study, links), found, [note])


improvement = Fields(Improvement)


def history_columns(
    confirmed: Mapping[int, Speedup] | None = None, study: str = "", links: Links = LINKS
) -> list[Column[Improvement]]:
    """A line of the history."""
    known = confirmed or {}

    def speedup(each: Improvement) -> float:
        return known[each.number].mid if each.number in known else each.speedup

    return [
        trial_column(study, links),
        improvement("at", head="when", reads=moment),
        improvement("judged"),
        improvement("seconds", reads=lambda seconds: f"{seconds:.0f}"),
        improvement("speedup", of=speedup, says=OF_EITHER, text=lambda e: quoted(speedup(e), e.number in known)),
        data("confirmed", bool, "that was confirmed by finals", lambda e: e.number in known),
    ]


def costs_table(found: StudyCosts) -> Table:
    """What trials of each verdict cost, by stage, and the pace."""
    total, notes = sum(each.seconds for each in found.by_verdict) or 1.0, []
    if (pace := found.pace) is not None:
        an_hour = f"{pace.trials_an_hour:,.0f} trials an hour while it was worked on, {pace.last_trials_an_hour:,.0f}"
        busy = f"Builders and devices were busy for {percent(pace.busy_share)} of that time"
        notes.append(f"{an_hour} of late. {busy}; several at once make more than 100 %.")
    return Table.of(cost_columns(total), found.by_verdict, notes)


cost = Fields(Cost)


def cost_columns(total: float = 1.0) -> list[Column[Cost]]:
    """What trials of a verdict cost; `total`: seconds of all."""
    return [
        cost("verdict", reads=lambda verdict: Verdict(verdict).words),
        cost("trials"),
        Column("seconds", float, "of devices and builders", head="time", reads=span),
        Column("share", float, "of all", lambda e: e.seconds / total, "of all", lambda share: percent(share, 1)),
        Column("each_seconds", float, "of one trial", lambda e: e.seconds / e.trials, "each", span),
        cost("build_seconds", "build_s", head="build", reads=span),
        cost("gate_seconds", "check_s", head="gate", reads=span),
        cost("race_seconds", "measure_s", head="race", reads=span),
    ]


PACE = Fields(Pace).data("trials", "active_s", "trials_an_hour", "last_trials_an_hour", "busy_share")
"""How fast a study is judged."""


def comparison_table(
    names: tuple[str, str], found: StudyComparison, best: tuple[Quoted | None, Quoted | None] = (None, None)
) -> Table:
    """Two studies by the variants of both, by the searches; `best`: what the trial to use of each came to."""
    notes = [
        f"The trial to use of {name}: {quoted(*each)}{', confirmed' if each[1] else ''}."
        for name, each in zip(names, best, strict=True)
        if each is not None
    ]
    return Table.of(COMPARISON, [found], notes, title=lambda _: f"{names[1]}, the second, over {names[0]}, the first")


def _gain(found: Speedup) -> str:
    return f"{quoted(found.mid, False)} [{found.low:.3f}, {found.high:.3f}]"


compared = Fields(StudyComparison)
COMPARISON: list[Column[StudyComparison]] = [
    compared("shared", head="right in both"),
    compared("faster", head="faster in the second"),
    compared("speedup", head="speedup, by the searches", reads=_gain, none="no variant is right in both"),
    compared("variant_ratio", head="microseconds", reads=lambda found: f"{found:.3f} times those in the first"),
    compared("only_right_in_first"),
    compared("only_right_in_second"),
]
"""What two studies say of the variants of both."""

BESIDE = 16
"""Variants that the table of problems has, beside the baseline."""


TimesOn = tuple[str, Mapping[int | None, float]]
"""A problem, and the microseconds of each variant on it by its trial's number; None: of the baseline."""


def problems_table(of: Snapshot) -> Table:
    """What the fastest variants take on each problem, beside the baseline."""
    numbers = tuple(entry.number for entry in of.board[:BESIDE])
    found = [_times(str(each), place, of.times(numbers)) for place, each in enumerate(of.record.problems)]
    shown = (None, *(number for number in numbers if any(number in us for _, us in found)))
    return Table.of(
        [Column("problem", str, of=lambda e: e[0]), *(_times_column(each, of.baseline) for each in shown)], found
    )


def _times(problem: str, place: int, times: Mapping[tuple[int, int], tuple[float, float]]) -> TimesOn:
    """Each variant's time is taken as its ratio to the baseline of its own blocks: blocks of other hours differ."""
    of = {number: each for (at, number), each in times.items() if at == place}
    if not of:
        return problem, {}
    base = median_high(us for _, us in of.values())
    return problem, {None: base, **{number: base * us / beside for number, (us, beside) in of.items()}}


def _times_column(number: int | None, baseline: str) -> Column[TimesOn]:
    key = "baseline_us" if number is None else f"trial_{number}_us"
    head = f"{baseline} us" if number is None else f"#{number} us"
    return Column(key, float, "of one forward", lambda e: e[1].get(number), head, micros, none="-")


FIGURES: Mapping[str, Callable[[Snapshot], Table]] = {
    "history": lambda of: history_table(of.improvements, of.confirmed),
    "costs": lambda of: costs_table(of.costs),
}
"""What a command or a program can ask of a study, by what they call it."""
