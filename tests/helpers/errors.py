"""Outcomes of variants that are numerically wrong."""

from autotuner.values.gate_report import CaseErrors, CaseResult, CheckResult, Extent, GateReport
from autotuner.values.outcome import Outcome
from autotuner.values.verdict import Fault, Verdict
from tests.helpers.recorded import REQUIRED, artifact, case_errors, variant


def errors(first_bad_row: tuple[int, int, int] | None, bad_rows: float, nonfinite: int = 0) -> CaseErrors:
    """Of an output that breaks every rule, with its worst element near the end."""
    worst = {"worst_index": (1, 2, 508, 7), "worst_value": 0.125, "worst_reference": 0.625}
    rows = {"row_rel": 0.8, "row_rel_tol": 1e-3, "slice_rel": 0.1, "slice_rel_tol": 1e-4, "bad_rows": bad_rows}
    more = {"nonfinite": nonfinite, "first_bad_row": first_bad_row}
    return case_errors(0.5, 1e-3).model_copy(update={**worst, **rows, **more})


def extent(shape: tuple[int, int, int], first_bad_row: tuple[int, int, int]) -> Extent:
    """Of an output of this batch, these heads and rows, of which some rows are bad in every column."""
    batch, heads, rows = shape
    first = (first_bad_row[0] * heads + first_bad_row[1], first_bad_row[2])
    return Extent(
        rows=1,
        of_rows=batch * heads * rows,
        slices=1,
        of_slices=batch * heads,
        columns=tuple(range(64)),
        of_columns=64,
        tile=64,
        rows_of_tile=(),
        tiles=1,
        largest=0.5,
        first=first,
    )


def incorrect(
    found: CaseErrors,
    *,
    causal: bool = False,
    tile: int = 100,
    case: str = "Q3 2x3x509x509 randn",
    bad: Extent | None = None,
) -> Outcome:
    fault = Fault(verdict=Verdict.INCORRECT, code=f"G2.{found.failed_rule}", detail="see the errors", case=case)
    if bad is None and found.first_bad_row is not None:
        bad = extent((2, 3, 509), (found.first_bad_row[0], found.first_bad_row[1], found.first_bad_row[2]))
    result = CaseResult(case=case, seed_index=0, errors=found, extent=bad)
    check = CheckResult(code="G2.quick", status="fail", seconds=0.1, cases=(result,))
    built = artifact(tile)
    built = built.model_copy(update={"macros": {**built.macros, "CAUSAL": str(int(causal))}})
    gate = GateReport(artifact=built.digest, required=REQUIRED, checks=(check,), fault=fault)
    return Outcome(variant=variant(tile), verdict=Verdict.INCORRECT, artifact=built, gate=gate, fault=fault)
