"""What the gate found, as a person reads it: check by check, and the baselines case by case."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from autotuner.ops import op_of
from autotuner.tuning.trial_report import TrialReport
from autotuner.values.gate_report import ReferenceCheck
from autotuner.values.outcome import Calibration, Device
from autotuner.views.meanings import meanings
from autotuner.views.terminal import new_table


def gate_table(report: TrialReport) -> RenderableType:
    """Every check of the gate that ran: how it ended, what it took and the largest error it saw."""
    table = new_table("check", "", "ms", "launches", "cases", "worst error", "asserts", right=(2, 3, 4, 5))
    known = meanings(op_of(report.problems[0]))
    styles = {"fail": "red", "unavailable": "yellow"}
    for check in report.checks:
        ratios = [case.errors.worst_ratio for case in check.cases]
        worst = f"{max(ratios):.2f} of tolerance" if ratios else ""
        counts = [str(count) if count else "" for count in (check.launches, len(ratios))]
        said = check.note or (known[check.code].asserts if check.code in known else "")
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


def reference_table(calibration: Calibration, device: Device) -> RenderableType:
    """The op's baselines against float64: the largest error in tolerances, a case a row."""
    backends = list(dict.fromkeys(check.backend for check in calibration.references))
    table = new_table("case", *backends, right=tuple(range(1, len(backends) + 1)))
    found = {(check.case, check.backend): check for check in calibration.references}
    for case in dict.fromkeys(check.case for check in calibration.references):
        table.add_row(case, *(_reference_cell(found.get((case, backend))) for backend in backends))
    driver = {name: device.environment[name] for name in ("driver", "driver_module") if device.environment.get(name)}
    versions = ", ".join(f"{name} {version}" for name, version in {**calibration.versions, **driver}.items())
    verdict = _reference_verdict(calibration)
    note = Text("Largest error in units of its tolerance; above 1 breaks it. -: the baseline does not take the case.")
    times = [Text(f"{t.problem}: {t.backend} {t.median_us:.2f} us") for t in calibration.timings]
    return Group(table, note, Text(verdict), Text(f"{device.name}: {versions}"), *times)


def _reference_verdict(calibration: Calibration) -> str:
    broken = sorted({f"{check.backend} breaks {check.failed_rule} on {check.case}" for check in calibration.broken})
    if not broken:
        return "Every baseline is within tolerance on each case it takes."
    if calibration.oracle_fault is not None:
        return f"oracle_error: {'; '.join(broken)}"
    return f"No baseline here: {', '.join(sorted(calibration.left_out))}. {'; '.join(broken)}"


def _reference_cell(check: ReferenceCheck | None) -> Text:
    if check is None or check.errors is None:
        return Text("-", style="dim")
    rule = check.failed_rule
    return Text(f"{check.errors.worst_ratio:.2f}{f' {rule}' if rule else ''}", style="red" if rule else "")
