"""Outcomes of variants that are numerically wrong."""

from __future__ import annotations

from autotuner.values.gate_report import CaseErrors, CaseResult, CheckResult, GateReport
from autotuner.values.outcome import Outcome
from autotuner.values.verdict import Fault, Verdict
from tests.helpers.recorded import (
    artifact,
    variant,
)


def errors(first_bad_row: tuple[int, int, int] | None, bad_rows: float, nonfinite: int = 0) -> CaseErrors:
    return CaseErrors(
        nonfinite=nonfinite,
        max_abs=0.5,
        max_abs_tol=1e-3,
        row_rel=0.8,
        row_rel_tol=1e-3,
        slice_rel=0.1,
        slice_rel_tol=1e-4,
        bias=0.0,
        worst_index=(1, 2, 508, 7),
        worst_value=0.125,
        worst_reference=0.625,
        first_bad_row=first_bad_row,
        bad_rows=bad_rows,
    )


def incorrect(
    found: CaseErrors, *, causal: bool = False, tile: int = 100, case: str = "Q3 2x3x509x509 randn"
) -> Outcome:
    fault = Fault(verdict=Verdict.INCORRECT, code=f"G2.{found.failed_rule}", detail="see the errors", case=case)
    check = CheckResult(
        code="G2.quick", status="fail", seconds=0.1, cases=(CaseResult(case=case, seed_index=0, errors=found),)
    )
    built = artifact(tile).model_copy(update={"causal": causal})
    gate = GateReport(artifact=built.digest, checks=(check,), fault=fault)
    return Outcome(variant=variant(tile), verdict=Verdict.INCORRECT, artifact=built, gate=gate, fault=fault)
