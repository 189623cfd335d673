"""Studies at a glance: how far each is, what it came to, and what was rejected for what."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from autotuner.ops import op_of
from autotuner.values.problem import Problem
from autotuner.values.ratio import Speedup, quoted
from autotuner.views.table import Column, Table, data, model_of, row_of
from autotuner.views.words import LATER, counts_words, ends, moment, numbers_words

if TYPE_CHECKING:  # sqlalchemy takes longer to import than a table to print
    from autotuner.tuning.finals.standings import FinalsSummary, StudySummary
    from autotuner.views.drawings.links import Links

FINALS: list[Column[FinalsSummary]] = [
    data("finished_at", datetime),
    data("host", str),
    data("processes", int),
    data("blocks", int, "of one process"),
    data("tie", float, "relative: ratios within it are ties"),
    data("resolution", float, "the smallest difference that could be shown, relative"),
    data("leader", int, "number of the fastest trial in them; null when none is left"),
    data("speedup", Speedup, "the leader's"),
    data("tied", tuple[int, ...], "trials that tie for the lead, the leader among them"),
    data("crowned", bool, "the leader is faster than all others and the baseline, by more than a tie"),
    data("judged_since", int, "trials judged after these finals began"),
]
Finals = model_of("Finals", "What the last finals of a study came to, as it is now.", FINALS)

SPREAD: list[Column[Any]] = [
    data("measured", int),
    data("best_us", float),
    data("median_us", float),
    data("worst_us", float),
]
LatencySpread = model_of("LatencySpread", "Latencies of the right variants of a study.", SPREAD)


def studies_table(found: Sequence[StudySummary], links: Links | None = None) -> Table:
    """A row a study."""
    return Table.of(study_columns(links), found, title=_title)


def list_table(found: Sequence[StudySummary]) -> Table:
    """A row a study, with what tells it from the others."""
    kept = ("name", "state", "judged", "best_speedup", "last_activity")
    return Table.of([each for each in study_columns() if each.key in kept], found)


def study_columns(links: Links | None = None) -> list[Column[StudySummary]]:
    """A study at a glance; `links`: of the pages, where the table is on one."""
    return [
        Column("name", str, head="study", where="table", href=None if links is None else lambda e: links.study(e.name)),
        data("space", str),
        Column("state", str, "running or idle", _state, where="table", look=lambda e: LOOKS.get(_state(e), "")),
        data("running", bool, "a driver is at work on it now"),
        Column("device", str),
        Column("problems", tuple[Problem, ...], head="problem", reads=lambda found: "; ".join(map(str, found))),
        data("cache", str, "cold or warm: the device's cache before each forward"),
        data("sampler", str),
        Column("judged", int, "variants judged"),
        Column("rejected", int, "of them", where="table"),
        Column(
            "by_verdict",
            dict[str, int],
            "recorded trials, revoked ones left out",
            head="outcomes",
            reads=lambda found: counts_words({verdict.words: count for verdict, count in found.items()}),
            where="full",
        ),
        Column(
            "by_fault",
            dict[str, int],
            "rejected trials by the code of the first failure",
            head="rejected for",
            reads=counts_words,
            where="full",
        ),
        Column("revoked", int, reads=lambda count: f"{count:,}" if count else "", where="full"),
        Column(
            "disturbed",
            tuple[int, ...],
            "trials that were measured on a disturbed machine alone",
            reads=lambda found: f"{len(found)}: trial {numbers_words(found)}; {LATER}" if found else "",
            where="full",
        ),
        data("best_trial", int, "number of the trial to use", lambda e: e.best_number),
        Column(
            "best_speedup",
            float,
            "its t_baseline / t_variant",
            head="speedup",
            text=lambda e: "-" if e.best_speedup is None else quoted(e.best_speedup, e.best_confirmed),
            where="table",
        ),
        data("best_confirmed", bool, "that was confirmed by finals; else it is the estimate of the search"),
        Column("best_us", float, "microseconds of one forward of it", head="best", text=_best, where="full"),
        Column(
            "finals",
            Finals,
            "the last that came to an end",
            lambda e: e.finals and row_of(FINALS, e.finals),
            text=_finals,
            where="full",
        ),
        Column(
            "spread",
            LatencySpread,
            "of the right variants",
            lambda e: e.spread and row_of(SPREAD, e.spread),
            text=_spread,
            where="full",
        ),
        data("started_at", datetime),
        Column("last_activity", datetime, reads=moment),
    ]


LOOKS = {"running": "busy", "confirmed": "good"}
"""How the chips of states look."""


def _state(summary: StudySummary) -> str:
    return "running" if summary.running else "confirmed" if summary.best_confirmed else "idle"


def _title(summary: StudySummary) -> str:
    state = "running" if summary.running else "idle"
    return f"{summary.name}: {state}, sampler {summary.sampler}, {summary.cache} cache"


def _baseline(summary: StudySummary) -> str:
    return op_of(summary.problems[0]).words.baseline


def _best(summary: StudySummary) -> str:
    if summary.best_number is None:
        return ""
    assert summary.best_speedup is not None  # there is a best one
    said = quoted(summary.best_speedup, summary.best_confirmed, _baseline(summary))
    by = " confirmed" if summary.best_confirmed else f": by the search ({summary.best_us:.1f} us)"
    return f"trial {summary.best_number}: {said}{by}"


def _spread(summary: StudySummary) -> str:
    spread = summary.spread
    if spread is None or spread.measured < 2:
        return ""
    return (
        f"{spread.worst_to_best:.1f}x between the worst ({spread.worst_us:.1f} us) and the best"
        f" ({spread.best_us:.1f} us) of {spread.measured} right ones"
    )


def _finals(summary: StudySummary) -> str:
    """The last finals in a line."""
    finals, baseline = summary.finals, _baseline(summary)
    if finals is None:
        return ""
    head = f"{moment(finals.finished_at)}, {finals.processes} processes x {finals.blocks} blocks"
    if finals.leader is None or finals.speedup is None:
        return f"{head}: no finalist is left"
    confirmed = f"{finals.speedup.mid:.3f}x {baseline} ({ends(finals.speedup)})"
    line = f"{head}: trial {finals.leader} leads, confirmed {confirmed}"
    others = ", ".join(str(number) for number in finals.tied if number != finals.leader)
    line += f", tied with {others}" if others else ""
    line += ", crowned" if finals.crowned else ", nobody is crowned"
    return line + (f"; {finals.judged_since} judged since" if finals.judged_since else "")
