"""Studies as a person reads them: the leaderboard, the finals, and how far each study is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from autotuner.measure.confirm import Confirmed, Standing
from autotuner.ops import op_of
from autotuner.report.table import new_table
from autotuner.values.conditions import TIE
from autotuner.values.outcome import Interval, MeanInterval
from autotuner.values.problem import Problem

if TYPE_CHECKING:  # sqlalchemy takes longer to import than a table to print
    from autotuner.store import Finalist, FinalsRecord
    from autotuner.tuning.standings import Entry, FinalsSummary, StudySummary


LATER = "`autotuner tune` races them again when the machine is calm"
MOST_NUMBERS = 12
"""Numbers of trials that a line lists."""


def _interval(interval: Interval | MeanInterval) -> str:
    """Of a ratio, whose unbounded ends are 0 and infinity."""
    if not (interval.low > 0 and interval.high < math.inf):
        return "too few blocks" if isinstance(interval, Interval) else "too few processes"
    return f"{interval.low:.3f} to {interval.high:.3f}"


def _numbers(trials: Sequence[int]) -> str:
    shown = ", ".join(map(str, trials[:MOST_NUMBERS]))
    return f"{shown}, ..." if len(trials) > MOST_NUMBERS else shown


def disturbed_line(trials: Sequence[int]) -> RenderableType:
    """Under a leaderboard: what is not on it because the machine was disturbed."""
    return Text(f"Measured on a disturbed machine, so not ranked: trial {_numbers(trials)}; {LATER}.")


def leaderboard_table(entries: Sequence[Entry], problem: Problem) -> RenderableType:
    """The fastest variants; a speedup is t_baseline / t_variant, both from the same blocks.

    Once there were finals, what they confirmed comes first, and the search estimate stands apart as biased.
    """
    baseline = op_of(problem).words.baseline
    if not entries:
        return Text("No variant has passed the gate yet.")
    if any(entry.confirmed for entry in entries):
        return _confirmed_table(entries, baseline)
    table = new_table(
        "rank", "trial", "us", f"{baseline} us", "speedup", "95 % interval", "variant", right=(0, 1, 2, 3, 4)
    )
    for entry in entries:
        micros = f"{entry.median_us:.1f}", f"{entry.baseline_us:.1f}"
        row = (str(entry.rank), str(entry.number), *micros, _estimate(entry), _interval(entry.speedup))
        table.add_row(*row, str(entry.variant))
    note = "Search estimates: the best of many looks better than it is. ~ stopped early, an estimate."
    return Group(table, Text(note, style="dim"))


def _estimate(entry: Entry) -> str:
    return f"{'~' if entry.censored else ''}{entry.speedup.median:.3f}x"


def _confirmed_table(entries: Sequence[Entry], baseline: str) -> RenderableType:
    columns = (
        "rank",
        "trial",
        "confirmed",
        "95 % interval",
        "search (biased)",
        "off by",
        "us",
        f"{baseline} us",
        "variant",
    )
    table = new_table(*columns, right=(0, 1, 2, 4, 5, 6, 7))
    for entry in entries:
        found, off = entry.confirmed, entry.difference
        confirmed = ("-", "not in the finals") if found is None else (f"{found.mean:.3f}x", _interval(found))
        table.add_row(
            f"{entry.rank}{'=' if entry.tied else ''}",
            str(entry.number),
            *confirmed,
            _estimate(entry),
            "" if off is None else f"{off:+z.1%}",
            f"{entry.median_us:.1f}",
            f"{entry.baseline_us:.1f}",
            str(entry.variant),
        )
    crowned = next((entry.number for entry in entries if entry.crowned), None)
    tied = tuple(entry.number for entry in entries if entry.tied)
    beaten = any(entry.beaten for entry in entries)
    note = (
        "= ties for the lead. confirmed: in fresh processes, on fresh inputs. search: the best of many looks better"
        " than it is; off by: how much. us: of the search. ~ stopped early, an estimate."
    )
    return Group(table, Text(_ending(crowned, tied, beaten, baseline)), Text(note, style="dim"))


def _ending(crowned: int | None, tied: Sequence[int], beaten: bool, baseline: str) -> str:
    """How finals ended, in words. `beaten`: of those that they did not tell from the leader the search told some."""
    if crowned is not None:
        return f"Trial {crowned} is crowned: faster than {baseline} and every other finalist, by more than a tie."
    if tied:
        return "The finals cannot tell those apart that tie for the lead. Nobody is crowned."
    if beaten:
        return "What the finals do not tell from the first has lost to it in races of the search. Nobody is crowned."
    return f"The first is not shown to be faster than {baseline} by more than a tie. Nobody is crowned."


def finals_table(record: FinalsRecord, problem: Problem) -> RenderableType:
    """The finals of a study: what was confirmed of each finalist, the baseline as a line, and how it ended."""
    from autotuner.tuning.choice import rivals  # brings sqlalchemy along

    baseline, standing = op_of(problem).words.baseline, record.standing
    if standing is None:
        return Text(f"{record.study}: the finals {record.id} did not come to an end; heats run: {len(record.heats)}.")
    columns = ("trial", "confirmed", "95 % interval", "search (biased)", "off by", "", "variant")
    table = new_table(*columns, right=(0, 1, 3, 4))
    finalists = record.by_digest
    leads = {each.digest for each in rivals(record.finalists, standing)}
    lines = [
        (each.log_ratio.mean, _finalist_line(finalists[each.digest], each, standing, each.digest in leads))
        for each in standing.finalists
    ]
    lines.append((0.0, ("", "1.000x", "", "", "", "", f"{baseline} ({', '.join(dict.fromkeys(record.baselines))})")))
    for _, line in sorted(lines, key=lambda each: each[0]):
        table.add_row(*line)
    found = [finalists[each.digest].number for each in rivals(record.finalists, standing)]
    tied, crowned = tuple(found if len(found) > 1 else ()), found[0] if found and standing.crowned else None
    beaten = sum(each.tied for each in standing.finalists) > len(found)
    ending = _ending(crowned, tied, beaten, baseline) if found else "No finalist is left."
    notes = [*_finals_notes(record, standing), *_missing(record), *_rebuilt(record)]
    return Group(Text(_finals_head(record, standing)), table, Text(ending), *(Text(note) for note in notes))


def _finalist_line(finalist: Finalist, found: Confirmed, standing: Standing, leads: bool) -> tuple[str, ...]:
    """`leads`: by all that is known it may be the fastest."""
    log = found.log_ratio
    fastest = min(each.log_ratio.mean for each in standing.finalists)
    speedup = MeanInterval(low=math.exp(-log.high), mean=math.exp(-log.mean), high=math.exp(-log.low))
    slower = f"{math.expm1(log.mean - fastest):.1%} slower"
    if found.digest == standing.leader:
        place = "crowned" if standing.crowned else "leads" if leads else "lost to one that ties, in the search"
    elif found.tied and not leads:
        place = f"{slower}, and lost a race of the search"
    else:
        place = f"{'as fast' if found.alike else 'tied'}, {slower}" if found.tied else slower
    return (
        str(finalist.number),
        f"{speedup.mean:.3f}x",
        _interval(speedup),
        f"{math.exp(-finalist.estimate):.3f}x",
        f"{math.expm1(log.mean - finalist.estimate):+z.1%}",
        place,
        str(finalist.variant),
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
    elif standing.tie > TIE:
        source = f"2 standard deviations of {record.aa_races} A/A races"
    else:
        source = f"the least there is, and {record.aa_races} A/A races asked for no more"
    over = {"mean": "geometric mean over the problems", "max": "the worst problem's"}[record.objective]
    several = [f"Ratios: {over}."] if len(record.baselines) > 1 else []
    return [f"Tie band: {standing.tie:.2%}, {source}.", *_resolution(standing), *several]


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


def status_text(summary: StudySummary) -> RenderableType:
    """One study at a glance."""
    baseline = op_of(summary.problems[0]).words.baseline
    lines = [
        f"{summary.name}: {'running' if summary.running else 'idle'}, sampler {summary.sampler}, {summary.cache} cache",
        f"  device    {summary.device}",
        *(f"  problem   {problem}" for problem in summary.problems),
        f"  judged    {summary.judged}: " + ", ".join(f"{count} {kind}" for kind, count in summary.by_verdict.items()),
    ]
    if summary.by_fault:
        lines.append("  rejected  " + ", ".join(f"{count} {code}" for code, count in summary.by_fault.items()))
    if summary.revoked:
        lines.append(f"  revoked   {summary.revoked}")
    if summary.disturbed:
        lines.append(f"  disturbed {len(summary.disturbed)}: trial {_numbers(summary.disturbed)}; {LATER}")
    if summary.best_number is not None:
        by = "confirmed" if summary.best_confirmed else f"by the search ({summary.best_us:.1f} us), not confirmed"
        lines.append(f"  best      trial {summary.best_number}: {summary.best_speedup:.3f}x {baseline} {by}")
    if summary.finals is not None:
        lines.append(f"  finals    {_finals_line(summary.finals, baseline)}")
    if summary.spread is not None:
        spread = summary.spread
        lines.append(
            f"  spread    {spread.worst_to_best:.1f}x between the worst ({spread.worst_us:.1f} us) and the best "
            f"({spread.best_us:.1f} us) of {spread.measured} right ones"
        )
    lines.append(f"  last      {summary.last_activity:%Y-%m-%d %H:%M:%S} UTC")
    return Text("\n".join(lines))


def _finals_line(finals: FinalsSummary, baseline: str) -> str:
    """The last finals in a line."""
    head = f"{finals.finished_at:%Y-%m-%d %H:%M:%S} UTC, {finals.processes} processes x {finals.blocks} blocks"
    if finals.leader is None or finals.speedup is None:
        return f"{head}: no finalist is left"
    confirmed = f"{finals.speedup.mean:.3f}x {baseline} ({_interval(finals.speedup)})"
    line = f"{head}: trial {finals.leader} leads, confirmed {confirmed}"
    others = ", ".join(str(number) for number in finals.tied if number != finals.leader)
    line += f", tied with {others}" if others else ""
    line += ", crowned" if finals.crowned else ", nobody is crowned"
    return line + (f"; {finals.judged_since} judged since" if finals.judged_since else "")
