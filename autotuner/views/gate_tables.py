"""What the gate found: check by check, case by case, and the baselines case by case."""

from collections.abc import Sequence

from autotuner.ops import Op
from autotuner.values.gate_report import CaseResult, CheckResult, ReferenceCheck
from autotuner.values.outcome import Calibration, Device
from autotuner.views.causes import meanings
from autotuner.views.table import Column, Table
from autotuner.views.words import micros

LOOKS = {"pass": "good", "fail": "bad", "unavailable": "warn"}
"""How the chips of a check's states look."""


def checks_table(checks: Sequence[CheckResult], op: Op, looser: Sequence[str] = ()) -> Table:
    """Every check of the gate that ran: how it ended, what it took and the largest error it saw. `looser`: what the
    family takes away from the gate, and why."""
    known = meanings(op)

    def worst(check: CheckResult) -> float | None:
        return max((case.errors.worst_ratio for case in check.cases), default=None)

    def asserts(check: CheckResult) -> str:
        return check.note or (known[check.code].asserts if check.code in known else "")

    columns: list[Column[CheckResult]] = [
        Column("check", str, of=lambda e: e.code),
        Column("status", str, look=lambda e: LOOKS.get(e.status, "")),
        Column("ms", float, of=lambda e: 1e3 * e.seconds, reads=lambda found: f"{found:.1f}"),
        Column("launches", int, reads=lambda count: f"{count:,}" if count else ""),
        Column("cases", int, of=lambda e: len(e.cases), reads=lambda count: f"{count:,}" if count else ""),
        Column("worst_error", float, "over its tolerance", worst, "worst error / tolerance", of_tolerance),
        Column("asserts", str, of=asserts),
    ]
    return Table.of(columns, checks, [f"The family's kernel.toml loosens the gate: {reason}" for reason in looser])


def cases_table(checks: Sequence[CheckResult]) -> Table:
    """Every case of the gate."""
    return Table.of(CASES, [(check.code, case) for check in checks for case in check.cases])


CASES: list[Column[tuple[str, CaseResult]]] = [
    Column("check", str, of=lambda e: e[0]),
    Column("case", str, of=lambda e: e[1].case),
    Column("seed", int, of=lambda e: e[1].seed_index),
    Column("of_tolerance", float, of=lambda e: e[1].errors.worst_ratio, reads=lambda error: of_tolerance(error)),
    Column("breaks", str, of=lambda e: e[1].errors.failed_rule),
    Column("largest_error", float, of=lambda e: e[1].errors.max_abs, reads=lambda error: f"{error:.3g}"),
    Column("allowed", float, of=lambda e: e[1].errors.max_abs_tol, reads=lambda error: f"{error:.3g}"),
]
"""What a case of the gate found."""


def of_tolerance(error: float) -> str:
    """An error in units of its tolerance, so that those of a column align."""
    return f"{error:.3f}" if error < 1000 else f"{error:.3g}"


def reference_table(calibration: Calibration, device: Device) -> Table:
    """The op's baselines against float64: the largest error in tolerances, a case a row."""
    found: dict[str, dict[str, ReferenceCheck]] = {}
    for check in calibration.references:
        found.setdefault(check.case, {})[check.backend] = check
    driver = {name: device.environment[name] for name in ("driver", "driver_module") if device.environment.get(name)}
    versions = ", ".join(f"{name} {version}" for name, version in {**calibration.versions, **driver}.items())
    notes = [
        "Largest error in units of its tolerance; above 1 breaks it. -: the baseline does not take the case.",
        _reference_verdict(calibration),
        f"{device.name}: {versions}",
        *(f"{each.problem}: {each.backend} {micros(each.median_us)} us" for each in calibration.timings),
    ]
    backends = dict.fromkeys(check.backend for check in calibration.references)
    case = Column[tuple[str, dict[str, ReferenceCheck]]]("case", str, of=lambda line: line[0])
    return Table.of([case, *map(_reference_column, backends)], found.items(), notes)


def _reference_column(backend: str) -> Column[tuple[str, dict[str, ReferenceCheck]]]:
    """What a baseline computes in each case."""

    def rule(line: tuple[str, dict[str, ReferenceCheck]]) -> str:
        return (line[1][backend].failed_rule or "") if backend in line[1] else ""

    def error(line: tuple[str, dict[str, ReferenceCheck]]) -> float | None:
        errors = line[1][backend].errors if backend in line[1] else None
        return None if errors is None else errors.worst_ratio

    def text(line: tuple[str, dict[str, ReferenceCheck]]) -> str:
        return "-" if (found := error(line)) is None else f"{found:.2f} {rule(line)}".strip()

    return Column(backend, float, of=error, head=backend, text=text, look=lambda line: "bad" if rule(line) else "")


def _reference_verdict(calibration: Calibration) -> str:
    if calibration.oracle_fault is not None:
        return f"oracle_error: {calibration.oracle_fault}"
    out = "; ".join(calibration.left_out.values())
    return f"No baseline here: {out}" if out else "Every baseline is within tolerance on each case it takes."
