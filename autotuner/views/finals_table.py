"""The finals of a study as a table: what was confirmed of each finalist, and how they ended."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from autotuner.ops import op_of
from autotuner.race.confirm import Confirmed, Standing
from autotuner.values.conditions import TIE as LEAST_TIE
from autotuner.values.problem import Problem
from autotuner.values.ratio import speedup_of
from autotuner.views.terminal import STYLES, WIDE, Fitted, beside, new_table, note
from autotuner.views.words import POINTS, TIE, WINNER, ending_words, ends, over_words

if TYPE_CHECKING:  # sqlalchemy takes longer to import than a table to print
    from autotuner.store import Finalist, FinalsRecord


def finals_table(record: FinalsRecord, problem: Problem) -> RenderableType:
    """The finals of a study: what was confirmed of each finalist, the baseline as a line, and how it ended."""
    from autotuner.tuning.finals.standings import rivals  # brings sqlalchemy along

    baseline, standing = op_of(problem).words.baseline, record.standing
    if standing is None:
        return Text(f"{record.study}: the finals {record.id} did not come to an end; heats run: {len(record.heats)}.")
    finalists, found = record.by_digest, rivals(record.finalists, standing)
    leads = {each.digest for each in found}
    fastest_first = sorted(standing.finalists, key=lambda each: each.log_ratio.mid)
    above, points = beside([finalists[each.digest].variant.point for each in fastest_first])

    def made(width: int) -> RenderableType:
        biased = ("search", "off by") if width >= WIDE else ()
        right = (0, 1, 3, 4) if biased else (0, 1)
        table = new_table("trial", "confirmed", "95 % interval", *biased, "place", POINTS, right=right)
        theirs = f"{baseline} ({', '.join(dict.fromkeys(record.baselines))})"
        lines: list[tuple[float, tuple[str, ...]]] = [
            (0.0, ("", "1.000x", "", *("" for _ in biased), "baseline", theirs))
        ]
        for each, point in zip(fastest_first, points, strict=True):
            *known, search, off, place = _cells(finalists[each.digest], each, standing, leads)
            lines.append((each.log_ratio.mid, (*known, *((search, off) if biased else ()), place, point)))
        for _, line in sorted(lines, key=lambda each: each[0]):
            table.add_row(*line, style=STYLES.get(line[0][-1:], ""))
        return table

    numbers = [finalists[each.digest].number for each in found]
    tied, crowned = numbers if len(numbers) > 1 else [], numbers[0] if numbers and standing.crowned else None
    beaten = sum(each.tied for each in standing.finalists) > len(found)
    ending = ending_words(crowned, tied, beaten, baseline) if found else "No finalist is left."
    notes = [*_finals_notes(record, standing), *_missing(record), *_rebuilt(record)]
    head = note(_finals_head(record, standing))
    return Group(head, *above, Fitted(made), note(ending), *map(note, notes))


def _cells(finalist: Finalist, found: Confirmed, standing: Standing, leading: Collection[str]) -> tuple[str, ...]:
    """Of a finalist: the number with its sign, what was confirmed, the search's estimate, and the place. `leading`:
    digests of those who may be the fastest by all that is known."""
    leads = found.digest in leading
    log = found.log_ratio
    fastest = min(each.log_ratio.mid for each in standing.finalists)
    slower = f"{math.expm1(log.mid - fastest):.1%} slower"
    sign = ""
    if found.digest == standing.leader:
        sign = WINNER if standing.crowned else TIE if leads else ""
        place = "crowned" if standing.crowned else "leads" if leads else "lost to one that ties, in the search"
    elif found.tied and not leads:
        place = f"{slower}, and lost a race of the search"
    else:
        sign = TIE if found.tied else ""
        place = f"{'as fast' if found.alike else 'tied'}, {slower}" if found.tied else slower
    return (
        f"{finalist.number}{sign}",
        f"{log.speedup.mid:.3f}x",
        ends(log.speedup),
        f"{speedup_of(finalist.estimate):.3f}x",
        f"{math.expm1(log.mid - finalist.estimate):+z.1%}",
        place,
    )


def _finals_head(record: FinalsRecord, standing: Standing) -> str:
    when = f"{record.finished_at:%Y-%m-%d %H:%M:%S} UTC" if record.finished_at else "not over"
    return (
        f"{record.study}: finals {record.id}, {when}, on {record.host}:"
        f" {standing.processes} fresh processes x {record.blocks} blocks, fewer of those that were far behind"
    )


def _finals_notes(record: FinalsRecord, standing: Standing) -> list[str]:
    if not record.aa_races:
        source = "the least there is, for no A/A race was run"
    elif standing.tie > LEAST_TIE:
        source = f"2 standard deviations of {record.aa_races} A/A races"
    else:
        source = f"the least there is, and {record.aa_races} A/A races asked for no more"
    over = over_words(len(record.baselines), record.objective)
    return [f"Tie band: {standing.tie:.2%}, {source}.", *_resolution(standing), *([over] if over else [])]


def _resolution(standing: Standing) -> list[str]:
    """What these finals could not have shown."""
    if standing.resolution is None or len(standing.finalists) < 2:
        return []
    least = f"{standing.resolution:.1%}"
    return [f"Two of the finalists that differ by less than about {least} are not told apart by these heats."]


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
