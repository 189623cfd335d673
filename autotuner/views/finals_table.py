"""The finals of a study as a table: what was confirmed of each finalist, and how they ended. And what was judged again:
a variant beside its opponent, an earlier export beside today's best, a study that was done again elsewhere."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from autotuner.ops import op_of
from autotuner.race.confirm import Confirmed, Standing
from autotuner.store import FinalsRecord
from autotuner.tuning.again import BaselineSince, Race, Regression, findings
from autotuner.tuning.finals.standings import rivals
from autotuner.tuning.reproduced import Reproduced
from autotuner.values.conditions import TIE as LEAST_TIE
from autotuner.values.problem import Problem
from autotuner.values.ratio import UNCONFIRMED, Speedup, speedup_of
from autotuner.values.variant import Value
from autotuner.views.table import Column, Table
from autotuner.views.words import POINTS, TIE, WINNER, ending_words, ends, moment, over_words, point, ratio


class FinalsLine(NamedTuple):
    """A line: a finalist, or the baseline, which has no number."""

    trial: int | None
    confirmed: float
    confirmed_interval: Speedup | None
    search: float | None
    place: str
    sign: str = ""
    parameters: Mapping[str, Value] | None = None

    @property
    def off_by(self) -> float | None:
        """The search's estimate over what was confirmed, less 1."""
        return None if self.search is None else self.search / self.confirmed - 1


def finals_table(record: FinalsRecord, problem: Problem) -> Table:
    """The finals of a study: what was confirmed of each finalist, the baseline as a line, and how it ended."""
    baseline, standing = op_of(problem).over(record.baselines), record.standing
    assert standing is not None  # they came to an end
    pinned = ", ".join(dict.fromkeys(record.baselines))
    columns: list[Column[FinalsLine]] = [
        Column("trial", int, "its number", text=lambda e: "" if e.trial is None else f"{e.trial}{e.sign}"),
        Column("confirmed", float, "t_baseline / t_variant", reads=ratio),
        Column("confirmed_interval", Speedup, "the same with its ends", head="95 % interval", reads=ends),
        Column("search", float, "the search's estimate", head=UNCONFIRMED, reads=ratio, where="wide"),
        Column("off_by", float, "that over what was confirmed, less 1", reads=lambda e: f"{e:+z.1%}", where="wide"),
        Column("place", str),
        Column(
            POINTS, dict[str, Value], reads=point, none=baseline if baseline in pinned else f"{baseline} ({pinned})"
        ),
    ]
    found = rivals(record.finalists, standing)
    leads = {each.digest for each in found}
    lines = [FinalsLine(None, 1.0, None, None, "baseline")]
    for each in standing.finalists:
        finalist, speedup = record.by_digest[each.digest], each.log_ratio.speedup
        (place, sign), searched = _place(each, standing, each.digest in leads), speedup_of(finalist.estimate)
        lines.append(FinalsLine(finalist.number, speedup.mid, speedup, searched, place, sign, finalist.variant.point))
    numbers = [record.by_digest[each.digest].number for each in found]
    tied, crowned = numbers if len(numbers) > 1 else [], numbers[0] if numbers and standing.crowned else None
    beaten = sum(each.tied for each in standing.finalists) > len(found)
    ending = ending_words(crowned, tied, beaten, baseline) if found else "No finalist is left."
    notes = [ending, *_finals_notes(record, standing), *_missing(record), *_rebuilt(record)]
    fastest_first = sorted(lines, key=lambda each: -each.confirmed)
    return Table.of(columns, fastest_first, notes, lambda each: each.sign, [_finals_head(record, standing)])


def _place(found: Confirmed, standing: Standing, leads: bool) -> tuple[str, str]:
    """How a finalist compares with the fastest, and its sign. `leads`: it may be the fastest by all that is known."""
    fastest = min(each.log_ratio.mid for each in standing.finalists)
    slower = f"{math.expm1(found.log_ratio.mid - fastest):.1%} slower"
    if found.digest == standing.leader:
        if standing.crowned:
            return "crowned", WINNER
        return ("leads", TIE) if leads else ("lost to one that ties, in the search", "")
    if found.tied and not leads:
        return f"{slower}, and lost a race of the search", ""
    if found.tied:
        return f"{'as fast' if found.alike else 'tied'}, {slower}", TIE
    return slower, ""


def _finals_head(record: FinalsRecord, standing: Standing) -> str:
    assert record.finished_at is not None  # they came to an end
    return (
        f"{record.study}: finals {record.id}, {moment(record.finished_at)}, on {record.host}:"
        f" up to {standing.processes} fresh processes x {record.blocks} blocks a finalist"
    )


def _finals_notes(record: FinalsRecord, standing: Standing) -> list[str]:
    of_races = f"2 standard deviations of {record.aa_races} A/A races, and {LEAST_TIE:.2%} at least"
    notes = [f"Tie band: {standing.tie:.2%}: {of_races}."]
    if standing.resolution is not None and len(standing.finalists) > 1:
        least = f"{standing.resolution:.1%}"
        notes.append(f"Two of the finalists that differ by less than about {least} are not told apart by these heats.")
    return [*notes, *filter(None, [over_words(len(record.baselines), record.objective)])]


def _missing(record: FinalsRecord) -> list[str]:
    """Finalists that the standing does not have, and why."""
    faults = {heat.entrants[place]: fault for heat in record.heats for place, fault in heat.faults.items()}
    failed = [
        f"Trial {finalist.number} failed while it was timed: {faults[finalist.digest].code}:"
        f" {faults[finalist.digest].detail}"
        for finalist in record.finalists
        if finalist.digest in faults
    ]
    return [*failed, *(f"Trial {number} was revoked since: `autotuner show {number}`." for number in record.revoked)]


def _rebuilt(record: FinalsRecord) -> list[str]:
    """Finalists whose binary is not the one that the search measured."""
    return [
        f"Trial {finalist.number} raced as another binary than the search measured ({finalist.digest[:12]}, not"
        f" {finalist.searched[:12]}): it was built with other sources or another compiler."
        for finalist in record.finalists
        if finalist.digest != finalist.searched
    ]


# Again -------------------------------------------------------------------------------------------------------------

RACE: list[Column[Race]] = [
    Column("variant", str, of=lambda e: str(e.variant)),
    Column("against", str),
    Column("speedup", float, "t_opponent / t_variant", "speedup.mid", reads=lambda found: f"{found:.4f}x"),
    Column("interval", Speedup, "with its ends", "speedup", "95 % interval", lambda e: ends(e, "blocks")),
    Column("blocks", int),
    Column("winner", str, "null: neither is faster by more than a tie", none="none, they tie"),
]
"""A variant that was timed again."""


def race_table(race: Race) -> Table:
    """A variant that was timed again, beside its opponent."""
    over = over_words(len(race.problems), race.objective)
    return Table.of(RACE, [race], [over] if over else [], title=lambda e: f"{e.study}, trial {e.trial}, timed again")


def reproduced_table(levels: Sequence[Reproduced], torch: tuple[str, str]) -> Table:
    """What of a study was reproduced, a row a level; `torch`: its versions then and now."""
    columns = [Column[Reproduced]("level", str), Column[Reproduced]("found", str), Column[Reproduced]("detail", str)]
    return Table.of(columns, levels, above=["torch {} then, {} now.".format(*torch)])


BASELINES: list[Column[BaselineSince]] = [
    Column("problem", str, of=lambda e: str(e.problem)),
    Column("then", str, head="baseline then"),
    Column("now", str),
    Column("confirmed", Speedup, "over the exported binary, then", head="its time then", reads=str, none="no finals"),
    Column("today", Speedup, "over the exported binary, now", head="its time now", reads=str),
    Column("moved", bool, reads=lambda moved: "yes" if moved else "no"),
]
"""What a problem's baseline takes over the exported binary, which has not changed."""


def regression_table(found: Regression) -> Table:
    """The baselines, then and now; below them what is slower, in sentences."""
    who = "the same build" if found.same_build else f"trial {found.trial}, {found.variant}"
    race = f"Exported {found.exported_at:%Y-%m-%d}: trial {found.exported_trial}, {found.exported}. Today: {who}."
    return Table.of(BASELINES, found.baselines, findings(found), above=[race])
