"""The leaderboard: the fastest variants that passed the gate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from autotuner.ops import op_of
from autotuner.values.ratio import Speedup
from autotuner.views.table import Column, Table, trial_column
from autotuner.views.words import (
    ESTIMATE,
    LATER,
    POINTS,
    TIE,
    WINNER,
    ending_words,
    ends,
    micros,
    numbers_words,
    over_words,
    point,
    ratio,
)

if TYPE_CHECKING:  # sqlalchemy takes longer to import than a table to print
    from autotuner.store import StudyRecord
    from autotuner.tuning.standings import Entry
    from autotuner.views.drawings.links import Links

SIGNS = {
    WINNER: "crowned",
    TIE: "ties for the lead",
    ESTIMATE: "the race was stopped early: an estimate from few blocks",
}


def disturbed_line(trials: Sequence[int]) -> str:
    """Under a leaderboard: what is not on it because the machine was disturbed."""
    return f"Measured on a disturbed machine, so not ranked: trial {numbers_words(trials)}; {LATER}."


def leaderboard(entries: Sequence[Entry], of: StudyRecord, links: Links | None = None) -> Table:
    """The fastest variants; a speedup is t_baseline / t_variant, both from the same blocks.

    Once there were finals, what they confirmed comes first, and the search estimate stands apart as biased. `links`: of
    the pages, where the table is on one.
    """
    baseline = op_of(of.problems[0]).words.baseline
    has_finals = any(entry.confirmed for entry in entries)
    columns = _columns(has_finals, baseline, of.name, links)
    return Table.of(
        columns,
        entries,
        _notes(entries, of, baseline) if entries else (f"No variant of {of.name} has a latency yet.",),
        sign_of,
    )


def _columns(has_finals: bool, baseline: str, study: str, links: Links | None) -> list[Column[Entry]]:
    found: list[Column[Entry]] = [
        Column("rank", "rank", lambda e: e.rank, mark=lambda e: sign_of(e).replace(ESTIMATE, ""), after=True),
        trial_column(lambda e: e.number, study, links),
    ]
    if has_finals:
        found += [
            Column("confirmed", "confirmed", lambda e: e.confirmed and e.confirmed.mid, ratio, "-"),
            Column("confirmed_interval", "95 % interval", lambda e: e.confirmed, ends, "not in finals", right=False),
        ]
    found.append(
        Column("search", "search" if has_finals else "speedup", lambda e: e.speedup.mid, ratio, mark=_estimated)
    )
    if has_finals:
        found.append(Column("off_by", "off by", lambda e: e.difference, lambda share: f"{share:+z.1%}", wide=True))
    else:
        found.append(
            Column(
                "search_interval",
                "95 % interval",
                lambda e: e.speedup,
                lambda found: ends(found, "blocks"),
                right=False,
            )
        )
    return [
        *found,
        Column("us", "us", lambda e: e.median_us, micros, wide=has_finals),
        Column("baseline_us", f"{baseline} us", lambda e: e.baseline_us, micros, wide=True),
        Column(POINTS, POINTS, lambda e: e.variant.point, point, right=False),
    ]


def _of_blocks(speedup: Speedup) -> str:
    return ends(speedup, "blocks")


def sign_of(entry: Entry) -> str:
    """What an entry is at a glance; "" for one that was measured to the end and neither leads nor ties."""
    return WINNER if entry.crowned else TIE if entry.tied else ESTIMATE if entry.censored else ""


def _estimated(entry: Entry) -> str:
    return ESTIMATE if entry.censored else ""


def _notes(entries: Sequence[Entry], of: StudyRecord, baseline: str) -> list[str]:
    """What stands below the table: how the finals ended, and what its signs and columns mean."""
    has_finals = any(entry.confirmed for entry in entries)
    signs = [sign for sign in SIGNS if any(sign in (sign_of(entry), _estimated(entry)) for entry in entries)]
    notes = [f"{sign} {SIGNS[sign]}." for sign in signs]
    if has_finals:
        notes += ["confirmed: in fresh processes, on fresh inputs.", "search, us: of the search, biased: the best of"]
        notes[-1] += " many looks better than it is."
    else:
        notes.append("Search estimates: the best of many looks better than it is.")
    line = " ".join(filter(None, [*notes, over_words(len(of.problems), of.objective)]))
    if not has_finals:
        return [line]
    crowned = next((entry.number for entry in entries if entry.crowned), None)
    tied = tuple(entry.number for entry in entries if entry.tied)
    return [ending_words(crowned, tied, any(entry.beaten for entry in entries), baseline), line]
