"""What the gate found, check by check. For programs it is a part of the trial report (trial_report.py)."""

from __future__ import annotations

import math
from typing import Any, Literal

from pydantic import Field, model_validator

from autotuner.values.gate_policy import GatePolicy
from autotuner.values.model import Model
from autotuner.values.verdict import Fault


def error_in_tolerances(error: float, tolerance: float) -> float:
    """error / tolerance, where no error is within any tolerance and NaN within none."""
    if error == 0:
        return 0.0
    return error / tolerance if tolerance > 0 and not math.isnan(error) else math.inf


class CaseErrors(Model):
    """Errors of one output against the float64 reference, each beside its tolerance (docs/gate.md, T0 to T3)."""

    nonfinite: int
    max_abs: float
    max_abs_tol: float
    row_rel: float
    row_rel_tol: float
    head_rel: float
    head_rel_tol: float
    bias: float = Field(description="mean of output - reference, signed")
    worst_index: tuple[int, ...] = Field(description="(batch, head, row, column) of the largest absolute error")
    worst_value: float
    worst_reference: float
    first_bad_row: tuple[int, ...] | None = Field(description="(batch, head, row) of the first row out of tolerance")
    bad_rows: float = Field(description="fraction of rows out of tolerance")
    flash_ratio: float | None = Field(
        default=None, description="largest absolute error over that of torch's flash attention on the same inputs"
    )

    @property
    def failed_rule(self) -> str | None:
        """The first of T0..T3 that the output breaks. Written as `not <=`, so that NaN fails."""
        if self.nonfinite:
            return "T0"
        if not self.max_abs <= self.max_abs_tol:
            return "T1"
        if not self.row_rel <= self.row_rel_tol:
            return "T2"
        if not self.head_rel <= self.head_rel_tol:
            return "T3"
        return None

    @property
    def worst_ratio(self) -> float:
        """Largest error in units of its tolerance; above 1 is a failure."""
        pairs = (
            (self.max_abs, self.max_abs_tol),
            (self.row_rel, self.row_rel_tol),
            (self.head_rel, self.head_rel_tol),
        )
        return max(error_in_tolerances(error, tolerance) for error, tolerance in pairs)


class Extent(Model):
    """Which part of an output is wrong, or differs between two launches on the same input."""

    rows: int = Field(description="rows that are affected, of `of_rows`")
    of_rows: int
    heads: int = Field(description="(batch, head) slices that are affected, of `of_heads`")
    of_heads: int
    columns: tuple[int, ...] = Field(description="columns that are affected in any row")
    of_columns: int
    tile: int = Field(description="rows of the variant's own tile")
    rows_of_tile: tuple[int, ...] = Field(description="positions within a tile at which a row is affected")
    tiles: int = Field(description="tiles of which a row is affected")
    largest: float = Field(description="largest difference; infinite where a number is not finite")


class CaseResult(Model):
    """One case of the matrix with one seed."""

    case: str
    seed_index: int
    errors: CaseErrors
    extent: Extent | None = Field(default=None, description="what is out of tolerance; null when nothing is")


class CheckResult(Model):
    """One check of the gate."""

    code: str
    status: Literal["pass", "fail", "unavailable"]
    seconds: float
    launches: int = 0
    cases: tuple[CaseResult, ...] = ()
    differs: Extent | None = Field(default=None, description="where outputs differ that must be bitwise equal")
    stale: bool = Field(
        default=False, description="the wrong output is another where memory held zeros before: it depends on that"
    )
    note: str | None = Field(default=None, description="why the check is unavailable, or what it saw")


REQUIRED_CHECKS = (
    "G0.identity",
    "G1.smoke",
    "G2.quick",
    "G2.sdpa",
    "G3.repeat",
    "G3.scale_v",
    "G3.permute",
    "G3.ones",
    "G3.offset",
    "G3.misaligned",
    "G5.matrix",
)
"""Without a pass of each of these no variant has a latency."""


class ReportedIdentity(Model):
    """What the loaded library said of itself."""

    abi_version: int
    build_id: str
    macros: dict[str, str]


class GateReport(Model):
    """What the gate found, in the order it looked; the first failure stopped it."""

    schema_version: Literal[1, 2] = 2
    artifact: str = Field(description="digest of the artifact: the build id that the library must report")
    causal: bool = False
    streams: bool = Field(default=False, description="the device has streams: G4 is required")
    bounded: bool = Field(default=False, description="the artifact does not serve every length: G3.domain is required")
    policy: GatePolicy = Field(default=GatePolicy(), description="what the family's kernel.toml changes of the gate")
    identity: ReportedIdentity | None = None
    checks: tuple[CheckResult, ...]
    fault: Fault | None = None

    @model_validator(mode="before")
    @classmethod
    def _first_version(cls, document: Any) -> Any:
        """Version 1 knew of one reason to refuse lengths only."""
        if isinstance(document, dict) and "fixed_lengths" in document:
            return {**{k: v for k, v in document.items() if k != "fixed_lengths"}, "bounded": document["fixed_lengths"]}
        return document

    @property
    def passed(self) -> bool:
        """True when nothing failed and every required check ran: absence is no pass."""
        done = {check.code for check in self.checks if check.status == "pass"}
        return self.fault is None and self.required <= done

    @property
    def required(self) -> set[str]:
        """The checks without a pass of which this artifact has no latency."""
        extra = {
            "G3.future": self.causal,
            "G3.domain": self.bounded,
            "G4.stream": self.streams,
            "G4.capture": self.streams,
        }
        later = {"G2.sdpa"} if self.schema_version == 1 else set()
        return {*REQUIRED_CHECKS, *(code for code, needed in extra.items() if needed)} - later

    def extended(self, checks: tuple[CheckResult, ...], fault: Fault | None) -> GateReport:
        """This report with later checks (soak, after timing, sanitizers) appended."""
        return self.model_copy(update={"checks": self.checks + checks, "fault": fault})


class ReferenceCheck(Model):
    """One of torch's SDPA backends against the float64 reference on one case: the dual reference."""

    backend: str
    case: str
    errors: CaseErrors | None = Field(description="null where the backend does not take the case")

    @property
    def failed_rule(self) -> str | None:
        """The rule that the backend itself breaks."""
        return None if self.errors is None else self.errors.failed_rule
