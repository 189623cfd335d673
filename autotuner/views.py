"""Tables that the command line shows; each takes values and returns something to print."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autotuner.doctor import Knob
from autotuner.meanings import MEANINGS
from autotuner.outcome import Calibration, Device, Interval
from autotuner.report import ReferenceCheck
from autotuner.space import Space
from autotuner.store import Entry, StudySummary
from autotuner.trial_report import TrialReport


def _table(*columns: str, right: tuple[int, ...] = ()) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for index, name in enumerate(columns):
        table.add_column(name, justify="right" if index in right else "left", overflow="fold")
    return table


def _interval(interval: Interval) -> str:
    if not (math.isfinite(interval.low) and math.isfinite(interval.high)):
        return "too few blocks"
    return f"{interval.low:.3f} to {interval.high:.3f}"


def leaderboard_view(entries: Sequence[Entry]) -> RenderableType:
    """The fastest variants; the speedup is t_SDPA / t_variant, both from the same blocks."""
    if not entries:
        return Text("No variant has passed the gate yet.")
    table = _table("rank", "trial", "us", "SDPA us", "speedup", "95 % interval", "variant", right=(0, 1, 2, 3, 4))
    for entry in entries:
        speedup = f"{'~' if entry.censored else ''}{entry.speedup.median:.3f}x"
        micros = f"{entry.median_us:.1f}", f"{entry.baseline_us:.1f}"
        row = (str(entry.rank), str(entry.number), *micros, speedup, _interval(entry.speedup), str(entry.variant))
        table.add_row(*row)
    note = "Search estimates: the best of many looks better than it is. ~ stopped early, an estimate."
    return Group(table, Text(note, style="dim"))


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
    styles = {"fail": "red", "unavailable": "yellow"}
    for check in report.checks:
        ratios = [case.errors.worst_ratio for case in check.cases]
        worst = f"{max(ratios):.2f} of tolerance" if ratios else ""
        counts = [str(count) if count else "" for count in (check.launches, len(ratios))]
        said = check.note or _asserted(check.code)
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


def _asserted(code: str) -> str:
    """What a check asserts: a code of its own, or the first of those that it can fail with."""
    if code in MEANINGS:
        return MEANINGS[code]
    level = code.split(".")[0]
    return {
        "G1": "one launch: status, output, inputs, guards, floating-point environment",
        "G2": "quick cases are within tolerance",
        "G5": "the full case matrix is within tolerance",
    }.get(level, "")


def reference_view(calibration: Calibration, device: Device) -> RenderableType:
    """torch's SDPA backends against float64: the largest error in tolerances, a case a row."""
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
            f"  best      trial {summary.best_number}: {summary.best_us:.1f} us, {summary.best_speedup:.3f}x SDPA"
        )
    if summary.spread is not None:
        spread = summary.spread
        lines.append(
            f"  spread    {spread.worst_to_best:.1f}x between the worst ({spread.worst_us:.1f} us) and the best "
            f"({spread.best_us:.1f} us) of {spread.measured} right ones"
        )
    lines.append(f"  last      {summary.last_activity:%Y-%m-%d %H:%M:%S} UTC")
    return Text("\n".join(lines))


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
        "constraints": [
            {"expression": constraint.expression, "reason": constraint.reason, "removed": removed, "alone": alone}
            for constraint, removed, alone in zip(file.constraints, space.removed, space.alone, strict=True)
        ],
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
    constraints = _table("removed", "alone", "constraint", "reason", right=(0, 1))
    for constraint, removed, alone in zip(file.constraints, space.removed, space.alone, strict=True):
        by_itself = f"{alone:,}" if alone is not None else "?"
        constraints.add_row(f"{removed:,}", by_itself, constraint.expression, constraint.reason)
    head = f"{space.name}: {file.title}\n" + "\n".join(str(problem) for problem in file.problems)
    counts = f"{space.raw_count:,} raw points, {len(space):,} valid here ({len(space) / space.raw_count:.1%})"
    shown: list[RenderableType] = [Text(head), parameters, *([constraints] if file.constraints else []), Text(counts)]
    return Group(*shown)
