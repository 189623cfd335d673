"""The finals of a study as a table: what was confirmed of each finalist, and how they ended."""

import math
from collections.abc import Mapping
from typing import NamedTuple

from autotuner.ops import op_of
from autotuner.race.confirm import Confirmed, Standing
from autotuner.store import FinalsRecord
from autotuner.tuning.finals.standings import rivals
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


def finals_columns(baseline: str) -> list[Column[FinalsLine]]:
    """A line of the finals; `baseline`: how it reads in the place of parameters."""
    return [
        Column("trial", int, "its number", text=lambda e: "" if e.trial is None else f"{e.trial}{e.sign}"),
        Column("confirmed", float, "t_baseline / t_variant", reads=ratio),
        Column("confirmed_interval", Speedup, "the same with its ends", head="95 % interval", reads=ends),
        Column("search", float, "the search's estimate", head=UNCONFIRMED, reads=ratio, where="wide"),
        Column("off_by", float, "that over what was confirmed, less 1", reads=lambda e: f"{e:+z.1%}", where="wide"),
        Column("place", str),
        Column(POINTS, dict[str, Value], reads=point, none=baseline),
    ]


def finals_table(record: FinalsRecord, problem: Problem) -> Table:
    """The finals of a study: what was confirmed of each finalist, the baseline as a line, and how it ended."""
    baseline, standing = op_of(problem).over(record.baselines), record.standing
    assert standing is not None  # they came to an end
    pinned = ", ".join(dict.fromkeys(record.baselines))
    columns = finals_columns(baseline if baseline in pinned else f"{baseline} ({pinned})")
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
        f" {standing.processes} fresh processes x {record.blocks} blocks, fewer of those that were far behind"
    )


def _finals_notes(record: FinalsRecord, standing: Standing) -> list[str]:
    if not record.aa_races:
        source = "the least there is, for no A/A race was run"
    elif standing.tie > LEAST_TIE:
        source = f"2 standard deviations of {record.aa_races} A/A races"
    else:
        source = f"the least there is, and {record.aa_races} A/A races asked for no more"
    notes = [f"Tie band: {standing.tie:.2%}, {source}."]
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
