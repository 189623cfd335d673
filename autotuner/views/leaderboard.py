"""The leaderboard: the fastest variants that passed the gate."""

from collections.abc import Sequence

from autotuner.store import StudyRecord
from autotuner.tuning.finals.standings import Entry
from autotuner.values.ratio import BIASED, UNCONFIRMED
from autotuner.views.drawings.links import LINKS, Links
from autotuner.views.table import Column, Fields, Table, Where, points_column, trial_column
from autotuner.views.words import (
    ESTIMATE,
    LATER,
    TIE,
    WINNER,
    ending_words,
    ends,
    micros,
    numbers_words,
    over_words,
    ratio,
    searched,
)

SIGNS = {
    WINNER: "crowned",
    TIE: "ties for the lead",
    ESTIMATE: "the race was stopped early: an estimate from few blocks",
}


def disturbed_line(trials: Sequence[int]) -> str:
    """Under a leaderboard: what is not on it because the machine was disturbed."""
    return f"Not measured: trial {numbers_words(trials)}; {LATER}."


def leaderboard(entries: Sequence[Entry], of: StudyRecord, links: Links = LINKS) -> Table:
    """The fastest variants; a speedup is t_baseline / t_variant, both from the same blocks.

    Once there were finals, what they confirmed comes first, and the search estimate stands apart as biased. `links`: of
    the pages, where the table is on one.
    """
    baseline = of.over
    columns = leaderboard_columns(any(entry.confirmed for entry in entries), baseline, of.name, links)
    notes = _notes(entries, of, baseline) if entries else (f"No variant of {of.name} has a latency yet.",)
    return Table.of(columns, entries, notes, sign_of)


field = Fields(Entry)


def leaderboard_columns(
    has_finals: bool = False, baseline: str = "baseline", study: str = "", links: Links = LINKS
) -> list[Column[Entry]]:
    """A line of the leaderboard. What only finals find is shown after some."""
    before: Where = "data" if has_finals else "always"
    after: Where = "always" if has_finals else "data"
    wide: Where = "wide" if has_finals else "always"
    return [
        field("rank", text=lambda e: f"{e.rank}{place_sign(e)}"),
        trial_column(study, links),
        field("confirmed", "confirmed.mid", reads=ratio, none="-", where=after),
        field("confirmed_interval", "confirmed", head="95 % interval", reads=ends, none="not in finals", where=after),
        field("search", "speedup.mid", head=UNCONFIRMED, text=lambda e: searched(e.speedup.mid, e.censored)),
        field("search_interval", "speedup", head="95 % interval", reads=lambda e: ends(e, "blocks"), where=before),
        field("off_by", "difference", reads=lambda e: f"{e:+z.1%}", where="wide" if has_finals else "data"),
        field("variant_us", "median_us", head="us", reads=micros, where=wide),
        field("baseline_us", head=f"{baseline} us", reads=micros, where="wide"),
        field("verdict", type=str, where="data"),
        *field.data("censored", "tied", "beaten", "crowned"),
        points_column("variant.point"),
    ]


def sign_of(entry: Entry) -> str:
    """What an entry is at a glance; "" for one that was measured to the end and neither leads nor ties."""
    return WINNER if entry.crowned else TIE if entry.tied else ESTIMATE if entry.censored else ""


def place_sign(entry: Entry) -> str:
    """Behind a rank: crowned, or tied."""
    return sign_of(entry).replace(ESTIMATE, "")


def _notes(entries: Sequence[Entry], of: StudyRecord, baseline: str) -> list[str]:
    """What stands below the table: how the finals ended, and what its signs and columns mean."""
    has_finals = any(entry.confirmed for entry in entries)
    signs = [
        sign
        for sign in SIGNS
        if any(sign == sign_of(entry) or (sign == ESTIMATE and entry.censored) for entry in entries)
    ]
    notes = [f"{sign} {SIGNS[sign]}." for sign in signs]
    if has_finals:
        notes += ["confirmed: in fresh processes, on fresh inputs.", f"{UNCONFIRMED}, us: of the search: the best of"]
        notes[-1] += " many looks better than it is."
    else:
        notes.append(BIASED)
    line = " ".join(filter(None, [*notes, over_words(len(of.problems), of.objective)]))
    if not has_finals:
        return [line, f"`autotuner finals {of.name}` times the best again, in fresh processes, and confirms them."]
    crowned = next((entry.number for entry in entries if entry.crowned), None)
    tied = tuple(entry.number for entry in entries if entry.tied)
    return [ending_words(crowned, tied, any(entry.beaten for entry in entries), baseline), line]
