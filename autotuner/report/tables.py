"""Tables that the command line shows; each takes values and returns something to print."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autotuner.gate.meanings import meanings
from autotuner.measure.confirm import Confirmed, Standing
from autotuner.ops import op_of
from autotuner.tuning.trial_report import TrialReport
from autotuner.values.gate_report import ReferenceCheck
from autotuner.values.outcome import Calibration, Device, Interval, MeanInterval
from autotuner.values.terms import TIE
from autotuner.values.verdict import Meaning

if TYPE_CHECKING:  # numpy and sqlalchemy take longer to import than a table to print, and few tables need both
    from autotuner.spaces.dead_parameters import Knob
    from autotuner.spaces.space import Space
    from autotuner.store import Finalist, FinalsRecord
    from autotuner.tuning.standings import Entry, FinalsSummary, StudySummary


def _table(*columns: str, right: tuple[int, ...] = ()) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for index, name in enumerate(columns):
        table.add_column(name, justify="right" if index in right else "left", overflow="fold")
    return table


def _interval(interval: Interval | MeanInterval) -> str:
    """Of a ratio, whose unbounded ends are 0 and infinity."""
    if not (interval.low > 0 and interval.high < math.inf):
        return "too few blocks" if isinstance(interval, Interval) else "too few processes"
    return f"{interval.low:.3f} to {interval.high:.3f}"


def leaderboard_view(entries: Sequence[Entry]) -> RenderableType:
    """The fastest variants; a speedup is t_SDPA / t_variant, both from the same blocks.

    Once there were finals, what they confirmed comes first, and the search estimate stands apart as biased.
    """
    if not entries:
        return Text("No variant has passed the gate yet.")
    if any(entry.confirmed for entry in entries):
        return _confirmed_view(entries)
    table = _table("rank", "trial", "us", "SDPA us", "speedup", "95 % interval", "variant", right=(0, 1, 2, 3, 4))
    for entry in entries:
        micros = f"{entry.median_us:.1f}", f"{entry.baseline_us:.1f}"
        row = (str(entry.rank), str(entry.number), *micros, _estimate(entry), _interval(entry.speedup))
        table.add_row(*row, str(entry.variant))
    note = "Search estimates: the best of many looks better than it is. ~ stopped early, an estimate."
    return Group(table, Text(note, style="dim"))


def _estimate(entry: Entry) -> str:
    return f"{'~' if entry.censored else ''}{entry.speedup.median:.3f}x"


def _confirmed_view(entries: Sequence[Entry]) -> RenderableType:
    columns = ("rank", "trial", "confirmed", "95 % interval", "search (biased)", "off by", "us", "SDPA us", "variant")
    table = _table(*columns, right=(0, 1, 2, 4, 5, 6, 7))
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
    tied = any(entry.tied for entry in entries)
    note = (
        "= ties for the lead. confirmed: in fresh processes, on fresh inputs. search: the best of many looks better"
        " than it is; off by: how much. us: of the search. ~ stopped early, an estimate."
    )
    return Group(table, Text(_ending(crowned, tied)), Text(note, style="dim"))


def _ending(crowned: int | None, tied: bool) -> str:
    """How finals ended, in words."""
    if crowned is not None:
        return f"Trial {crowned} is crowned: faster than SDPA and every other finalist, by more than a tie."
    if tied:
        return "Those that tie for the lead are not told apart by the finals. Nobody is crowned."
    return "The first is not shown to be faster than SDPA by more than a tie. Nobody is crowned."


def finals_view(record: FinalsRecord) -> RenderableType:
    """The finals of a study: what was confirmed of each finalist, SDPA between them as a line, and how it ended."""
    standing = record.standing
    if standing is None:
        return Text(f"{record.study}: the finals {record.id} did not come to an end; heats run: {len(record.heats)}.")
    columns = ("trial", "confirmed", "95 % interval", "search (biased)", "off by", "", "variant")
    table = _table(*columns, right=(0, 1, 3, 4))
    finalists = record.by_digest
    lines = [
        (each.log_ratio.mean, _finalist_line(finalists[each.digest], each, standing)) for each in standing.finalists
    ]
    lines.append((0.0, ("", "1.000x", "", "", "", "", f"SDPA ({', '.join(dict.fromkeys(record.baselines))})")))
    for _, line in sorted(lines, key=lambda each: each[0]):
        table.add_row(*line)
    tied = sum(each.tied for each in standing.finalists) > 1
    leader = None if standing.leader is None else finalists[standing.leader].number
    ending = "No finalist is left." if leader is None else _ending(leader if standing.crowned else None, tied)
    notes = [*_finals_notes(record, standing), *_missing(record), *_rebuilt(record)]
    return Group(Text(_finals_head(record, standing)), table, Text(ending), *(Text(note) for note in notes))


def _finalist_line(finalist: Finalist, found: Confirmed, standing: Standing) -> tuple[str, ...]:
    log = found.log_ratio
    fastest = min(each.log_ratio.mean for each in standing.finalists)
    speedup = MeanInterval(low=math.exp(-log.high), mean=math.exp(-log.mean), high=math.exp(-log.low))
    slower = f"{math.expm1(log.mean - fastest):.1%} slower"
    if found.digest == standing.leader:
        place = "crowned" if standing.crowned else "leads"
    else:
        place = f"tied, {slower}" if found.tied else slower
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
        f" {standing.processes} fresh processes x {record.blocks} blocks"
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
    return [f"Tie band: {standing.tie:.2%}, {source}.", *several]


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


def doctor_view(knobs: Sequence[Knob]) -> RenderableType:
    """Each knob of a space: whether it reaches the program."""
    table = _table("IMPL", "parameter", "knob", "found")
    for knob in knobs:
        style = {"alive": None, "untested": "yellow"}.get(knob.state, "red")
        table.add_row(knob.impl, knob.parameter, Text(knob.state, style=style or ""), knob.detail)
    bad = sum(knob.state in ("dead", "same values") for knob in knobs)
    note = f"{bad} of {len(knobs)} knobs do not reach the program." if bad else f"{len(knobs)} knobs, none dead."
    return Group(table, Text(note))


def gate_view(report: TrialReport) -> RenderableType:
    """Every check of the gate that ran: how it ended, what it took and the largest error it saw."""
    table = _table("check", "", "ms", "launches", "cases", "worst error", "asserts", right=(2, 3, 4, 5))
    known = meanings(op_of(report.problems[0]))
    styles = {"fail": "red", "unavailable": "yellow"}
    for check in report.checks:
        ratios = [case.errors.worst_ratio for case in check.cases]
        worst = f"{max(ratios):.2f} of tolerance" if ratios else ""
        counts = [str(count) if count else "" for count in (check.launches, len(ratios))]
        said = check.note or _asserted(check.code, known)
        table.add_row(
            check.code,
            Text(check.status, style=styles.get(check.status, "")),
            f"{1e3 * check.seconds:.1f}",
            *counts,
            worst,
            said,
        )
    looser = [Text(f"The family's kernel.toml loosens the gate: {reason}", style="yellow") for reason in report.looser]
    return Group(table, *looser)


def _asserted(code: str, known: Mapping[str, Meaning]) -> str:
    """What a check asserts; nothing of one that an earlier version had."""
    return known[code].asserts if code in known else ""


def reference_view(calibration: Calibration, device: Device) -> RenderableType:
    """the op's baselines against float64: the largest error in tolerances, a case a row."""
    backends = list(dict.fromkeys(check.backend for check in calibration.references))
    table = _table("case", *backends, right=tuple(range(1, len(backends) + 1)))
    found = {(check.case, check.backend): check for check in calibration.references}
    for case in dict.fromkeys(check.case for check in calibration.references):
        table.add_row(case, *(_reference_cell(found.get((case, backend))) for backend in backends))
    driver = {name: device.environment[name] for name in ("driver", "driver_module") if device.environment.get(name)}
    versions = ", ".join(f"{name} {version}" for name, version in {**calibration.versions, **driver}.items())
    broken = sorted({f"{check.backend} breaks {check.failed_rule} on {check.case}" for check in calibration.broken})
    verdict = (
        f"oracle_error: {'; '.join(broken)}" if broken else "Every backend is within tolerance on each case it takes."
    )
    note = Text("Largest error in units of its tolerance; above 1 breaks it. -: the backend does not take the case.")
    times = [Text(f"{t.problem}: {t.backend} {t.median_us:.2f} us") for t in calibration.timings]
    return Group(table, note, Text(verdict), Text(f"{device.name}: {versions}"), *times)


def _reference_cell(check: ReferenceCheck | None) -> Text:
    if check is None or check.errors is None:
        return Text("-", style="dim")
    rule = check.failed_rule
    return Text(f"{check.errors.worst_ratio:.2f}{f' {rule}' if rule else ''}", style="red" if rule else "")


def status_view(summary: StudySummary) -> RenderableType:
    """One study at a glance."""
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
    if summary.best_number is not None:
        lines.append(
            f"  best      trial {summary.best_number}: {summary.best_us:.1f} us,"
            f" {summary.best_speedup:.3f}x SDPA by the search"
        )
    if summary.finals is not None:
        lines.append(f"  finals    {_finals_line(summary.finals)}")
    if summary.spread is not None:
        spread = summary.spread
        lines.append(
            f"  spread    {spread.worst_to_best:.1f}x between the worst ({spread.worst_us:.1f} us) and the best "
            f"({spread.best_us:.1f} us) of {spread.measured} right ones"
        )
    lines.append(f"  last      {summary.last_activity:%Y-%m-%d %H:%M:%S} UTC")
    return Text("\n".join(lines))


def _finals_line(finals: FinalsSummary) -> str:
    """The last finals in a line."""
    head = f"{finals.finished_at:%Y-%m-%d %H:%M:%S} UTC, {finals.processes} processes x {finals.blocks} blocks"
    if finals.leader is None or finals.speedup is None:
        return f"{head}: no finalist is left"
    line = (
        f"{head}: trial {finals.leader} leads, confirmed {finals.speedup.mean:.3f}x SDPA ({_interval(finals.speedup)})"
    )
    others = ", ".join(str(number) for number in finals.tied if number != finals.leader)
    line += f", tied with {others}" if others else ""
    line += ", crowned" if finals.crowned else ", nobody is crowned"
    return line + (f"; {finals.judged_since} judged since" if finals.judged_since else "")


def space_document(space: Space) -> dict[str, Any]:
    """A space as JSON-ready data."""
    file = space.file
    return {
        "name": space.name,
        "title": file.title,
        "family": file.family,
        "backend": file.backend,
        "problems": [problem.model_dump(mode="json") for problem in file.problems],
        "parameters": {
            name: {"values": list(parameter.values), "when": parameter.when}
            for name, parameter in file.parameters.items()
        },
        "raw_points": space.raw_count,
        "valid_points": len(space),
        "amounts": dict(file.amounts),
        "constraints": [
            {**constraint.model_dump(mode="json"), "removed": removed, "alone": alone}
            for constraint, removed, alone in zip(file.constraints, space.removed, space.alone, strict=True)
        ],
        "derived": [
            {"name": name, "expression": file.derived[name], "least": least, "greatest": greatest}
            for name, (least, greatest) in space.derived_ranges.items()
        ],
        "expected_latency": {"steps": dict(file.expected_latency), "spread": space.expected_spread},
        "default": dict(file.default),
        "facts": space.facts,
        "digest": space.digest,
    }


def space_view(space: Space) -> RenderableType:
    """Parameters, counts, and how many points each constraint removes."""
    file = space.file
    parameters = _table("parameter", "values", "exists when", "default")
    for name, parameter in file.parameters.items():
        values = ", ".join(str(value) for value in parameter.values)
        parameters.add_row(name, values, parameter.when or "", str(file.default.get(name, "")))
    constraints = _table("removed", "alone", "of", "constraint", "reason", right=(0, 1))
    for constraint, removed, alone in zip(file.constraints, space.removed, space.alone, strict=True):
        by_itself = f"{alone:,}" if alone is not None else "?"
        of = constraint.place.partition(".constraints")[0] or "space file"
        constraints.add_row(f"{removed:,}", by_itself, of, Text(constraint.expression), Text(constraint.reason))
    amounts = _table("amount", "expression")
    for name, text in file.amounts.items():
        amounts.add_row(name, text)
    derived = _table("derived", "expression", "least", "greatest", right=(2, 3))
    for name, text in file.derived.items():
        derived.add_row(name, text, *(f"{amount:,.4g}" for amount in space.derived_ranges[name]))
    head = f"{space.name}: {file.title}\n" + "\n".join(str(problem) for problem in file.problems)
    counts = f"{space.raw_count:,} raw points, {len(space):,} valid here ({len(space) / space.raw_count:.1%})"
    tables = [table for table in (parameters, derived, amounts, constraints) if table.row_count]
    if space.expected_spread is not None:
        counts += f"; expected to differ by {space.expected_spread:.3g}x from the fastest to the slowest"
    return Group(Text(head), *tables, Text(counts))
