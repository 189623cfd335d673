"""The leaderboard: the fastest variants that passed the gate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Group, RenderableType
from rich.text import Text

from autotuner.ops import op_of
from autotuner.views.table import ESTIMATE, POINTS, STYLES, TIE, WIDE, WINNER, Fitted, beside, new_table, note
from autotuner.views.words import LATER, ending_words, interval_words, numbers_words, over_words

if TYPE_CHECKING:  # sqlalchemy takes longer to import than a table to print
    from autotuner.store import StudyRecord
    from autotuner.tuning.standings import Entry

SIGNS = {
    WINNER: "crowned",
    TIE: "ties for the lead",
    ESTIMATE: "the race was stopped early: an estimate from few blocks",
}


class Column(NamedTuple):
    """A column of the leaderboard."""

    head: str
    cell: Callable[[Entry], str]
    only_wide: bool = False
    """Left out where a line is short."""


def disturbed_line(trials: Sequence[int]) -> RenderableType:
    """Under a leaderboard: what is not on it because the machine was disturbed."""
    return Text(f"Measured on a disturbed machine, so not ranked: trial {numbers_words(trials)}; {LATER}.")


def leaderboard_table(entries: Sequence[Entry], of: StudyRecord) -> RenderableType:
    """The fastest variants; a speedup is t_baseline / t_variant, both from the same blocks.

    Once there were finals, what they confirmed comes first, and the search estimate stands apart as biased.
    """
    if not entries:
        return Text(f"No variant of {of.name} has a latency yet.")
    baseline = op_of(of.problems[0]).words.baseline
    columns = _columns(any(entry.confirmed for entry in entries), baseline)
    above, points = beside([entry.variant.point for entry in entries])

    def made(width: int) -> RenderableType:
        shown = [column for column in columns if width >= WIDE or not column.only_wide]
        right = tuple(place for place, column in enumerate(shown) if "interval" not in column.head)
        table = new_table(*(column.head for column in shown), POINTS, right=right)
        for entry, point in zip(entries, points, strict=True):
            table.add_row(*(column.cell(entry) for column in shown), point, style=STYLES.get(_sign(entry), ""))
        return table

    return Group(*above, Fitted(made), *map(note, _notes(entries, of, baseline)))


def _columns(has_finals: bool, baseline: str) -> list[Column]:
    found = [
        Column("rank", lambda entry: f"{entry.rank}{_sign(entry).replace(ESTIMATE, '')}"),
        Column("trial", lambda entry: str(entry.number)),
    ]
    if has_finals:
        found += [
            Column("confirmed", _confirmed),
            Column("95 % interval", _confirmed_interval),
            Column("search", _estimate),
            Column("off by", lambda e: "" if e.difference is None else f"{e.difference:+z.1%}", only_wide=True),
        ]
    else:
        found += [
            Column("speedup", _estimate),
            Column("95 % interval", lambda entry: interval_words(entry.speedup, "blocks")),
        ]
    return [
        *found,
        Column("us", lambda entry: f"{entry.median_us:.1f}", only_wide=has_finals),
        Column(f"{baseline} us", lambda entry: f"{entry.baseline_us:.1f}", only_wide=True),
    ]


def _sign(entry: Entry) -> str:
    return WINNER if entry.crowned else TIE if entry.tied else ESTIMATE if entry.censored else ""


def _confirmed(entry: Entry) -> str:
    return "-" if entry.confirmed is None else f"{entry.confirmed.mid:.3f}x"


def _confirmed_interval(entry: Entry) -> str:
    return "not in finals" if entry.confirmed is None else interval_words(entry.confirmed)


def _estimate(entry: Entry) -> str:
    return f"{ESTIMATE if entry.censored else ''}{entry.speedup.mid:.3f}x"


def _notes(entries: Sequence[Entry], of: StudyRecord, baseline: str) -> list[str]:
    """What stands below the table: how the finals ended, and what its signs and columns mean."""
    has_finals = any(entry.confirmed for entry in entries)
    signs = [sign for sign in SIGNS if any(sign in (_sign(entry), _estimate(entry)[0]) for entry in entries)]
    notes = [*(f"{sign} {SIGNS[sign]}." for sign in signs)]
    if has_finals:
        notes += [
            "confirmed: in fresh processes, on fresh inputs.",
            "search, us: of the search, biased: the best of many",
        ]
        notes[-1] += " looks better than it is."
    else:
        notes.append("Search estimates: the best of many looks better than it is.")
    over = over_words(len(of.problems), of.objective)
    lines = [" ".join([*notes, *([over] if over else [])])]
    if not has_finals:
        return lines
    crowned = next((entry.number for entry in entries if entry.crowned), None)
    tied = tuple(entry.number for entry in entries if entry.tied)
    return [ending_words(crowned, tied, any(entry.beaten for entry in entries), baseline), *lines]
