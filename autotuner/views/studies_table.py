"""Studies at a glance: how far each is, what it came to, and what was rejected for what."""

from collections.abc import Mapping, Sequence

from autotuner.tuning.finals.standings import FinalsSummary, Spread, StudySummary
from autotuner.values.ratio import quoted
from autotuner.values.verdict import Verdict
from autotuner.views.drawings.links import LINKS, Links
from autotuner.views.table import Column, Fields, Table, model_of
from autotuner.views.words import LATER, best_quoted, counts_words, ends, moment, numbers_words

field = Fields(StudySummary)
FINALS = Fields(FinalsSummary).data(
    *("finished_at", "host", "processes", "blocks", "tie", "resolution", "leader", "speedup", "tied", "crowned"),
    "judged_since",
)
Finals = model_of("Finals", "What the last finals of a study came to, as it is now.", FINALS)
SPREAD = Fields(Spread).data("measured", "best_us", "median_us", "worst_us")
LatencySpread = model_of("LatencySpread", "Latencies of the right variants of a study.", SPREAD)


def studies_table(found: Sequence[StudySummary], links: Links = LINKS) -> Table:
    """A row a study."""
    return Table.of(study_columns(links), found, title=_title)


def list_table(found: Sequence[StudySummary]) -> Table:
    """A row a study, with what tells it from the others."""
    kept = ("name", "state", "judged", "best_speedup", "last_activity", "note")
    return Table.of([each for each in study_columns() if each.key in kept], found)


def study_columns(links: Links = LINKS) -> list[Column[StudySummary]]:
    """A study at a glance; `links`: of the pages, where the table is on one."""
    return [
        field("name", head="study", where="table", href=lambda e: links.study(e.name)),
        *field.data("space"),
        Column("state", str, "running or idle", _state, where="table", look=lambda e: LOOKS.get(_state(e), "")),
        *field.data("running"),
        field("device"),
        field("problems", head="problem", reads=lambda found: "; ".join(map(str, found))),
        *field.data("cache", "sampler"),
        field("judged"),
        Column("rejected", int, "of them", where="table"),
        field("by_verdict", type=dict[str, int], head="outcomes", reads=_verdicts, where="full"),
        field("by_fault", head="rejected for", reads=counts_words, where="full"),
        field("revoked", reads=lambda count: f"{count:,}" if count else "", where="full"),
        field("disturbed", reads=_disturbed, where="full"),
        *field.data(best_trial="best_number"),
        field("best_speedup", head="speedup", text=lambda e: best_quoted(e, "-"), where="table"),
        *field.data("best_confirmed"),
        field("best_us", head="best", text=_best, where="full"),
        field("finals", type=Finals, inner=FINALS, text=_finals, where="full"),
        field("spread", type=LatencySpread, inner=SPREAD, text=_spread, where="full"),
        *field.data("started_at"),
        field("last_activity", reads=moment),
        field("note", where="table"),
    ]


def _verdicts(found: Mapping[Verdict, int]) -> str:
    return counts_words({verdict.words: count for verdict, count in found.items()})


def _disturbed(found: Sequence[int]) -> str:
    return f"{len(found)}: trial {numbers_words(found)}; {LATER}" if found else ""


LOOKS = {"running": "busy", "confirmed": "good"}
"""How the chips of states look."""


def _state(summary: StudySummary) -> str:
    return "running" if summary.running else "confirmed" if summary.best_confirmed else "idle"


def _title(summary: StudySummary) -> str:
    state = "running" if summary.running else "idle"
    return f"{summary.name}: {state}, sampler {summary.sampler}, {summary.cache} cache"


def _best(summary: StudySummary) -> str:
    if summary.best_number is None:
        return ""
    assert summary.best_speedup is not None  # there is a best one
    said = quoted(summary.best_speedup, summary.best_confirmed, summary.over)
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
    finals, baseline = summary.finals, summary.over
    if finals is None:
        return ""
    head = f"{moment(finals.finished_at)}, {finals.processes} processes x {finals.blocks} blocks"
    if finals.leader is None or finals.speedup is None:
        return f"{head}: no finalist is left"
    confirmed = f"{finals.speedup.mid:.3f}x {baseline} ({ends(finals.speedup)})"
    line = f"{head}: trial {finals.leader} leads, confirmed {confirmed}"
    others = numbers_words([number for number in finals.tied if number != finals.leader])
    line += f", tied with {others}" if others else ""
    line += ", crowned" if finals.crowned else ", nobody is crowned"
    return line + (f"; {finals.judged_since} judged since" if finals.judged_since else "")
