"""The leaderboard: the fastest variants that passed the gate."""

from collections.abc import Sequence

from autotuner.store import StudyRecord
from autotuner.tuning.finals.standings import Entry
from autotuner.values.ratio import BIASED, UNCONFIRMED
from autotuner.views import words
from autotuner.views.drawings.links import LINKS, Links
from autotuner.views.table import Column, Fields, Table, Where, points_column, trial_column


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
        field("rank", text=lambda e: f"{e.rank}{sign_of(e).replace(words.ESTIMATE, '')}"),
        trial_column(study, links),
        field("confirmed", "confirmed.mid", reads=words.ratio, none="-", where=after),
        field(
            "confirmed_interval", "confirmed", head="95 % interval", reads=words.ends, none="not in finals", where=after
        ),
        field("search", "speedup.mid", head=UNCONFIRMED, text=words.searched),
        field(
            "search_interval", "speedup", head="95 % interval", reads=lambda e: words.ends(e, "blocks"), where=before
        ),
        field("off_by", "difference", reads=lambda e: f"{e:+z.1%}", where="wide" if has_finals else "data"),
        field("variant_us", "median_us", head="us", reads=words.micros, where=wide),
        field("baseline_us", head=f"{baseline} us", reads=words.micros, where="wide"),
        field("verdict", type=str, where="data"),
        *field.data("censored", "tied", "beaten", "crowned"),
        points_column("variant.point"),
    ]


def sign_of(entry: Entry) -> str:
    """What an entry is at a glance; "" for one that was measured to the end and neither leads nor ties."""
    return words.WINNER if entry.crowned else words.TIE if entry.tied else words.ESTIMATE if entry.censored else ""


def _notes(entries: Sequence[Entry], of: StudyRecord, baseline: str) -> list[str]:
    """What stands below the table: how the finals ended, and what its signs and columns mean."""
    has_finals = any(entry.confirmed for entry in entries)
    notes = words.signs_words({*map(sign_of, entries), *(words.ESTIMATE for entry in entries if entry.censored)})
    if has_finals:
        notes += ["confirmed: in fresh processes, on fresh inputs.", f"{UNCONFIRMED}, us: of the search: the best of"]
        notes[-1] += " many looks better than it is."
    else:
        notes.append(BIASED)
    line = " ".join(filter(None, [*notes, words.over_words(len(of.problems), of.objective)]))
    if not has_finals:
        return [line, f"`autotuner finals {of.name}` times the best again, in fresh processes, and confirms them."]
    crowned = next((entry.number for entry in entries if entry.crowned), None)
    tied = tuple(entry.number for entry in entries if entry.tied)
    return [words.ending_words(crowned, tied, any(entry.beaten for entry in entries), baseline), line]
