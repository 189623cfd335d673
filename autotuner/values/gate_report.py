"""What the gate found, check by check, and what a kernel family changes of it. For programs it is a part of the trial
report (trial_report.py).

A family says so in the table [gate] of its kernel.toml (docs/reference/kernel-toml.md). Stricter costs nothing. Looser
needs a written reason, which is kept in every report and shown with every export.
"""

import math
from typing import Annotated, Literal, Self

from pydantic import Field, PositiveInt, StringConstraints, model_validator

from autotuner.values.model import Model
from autotuner.values.verdict import Fault

Reason = Annotated[str, StringConstraints(strip_whitespace=True, min_length=10)]
"""Why the gate may look away: a sentence, for whoever relies on the variant."""


class Tolerance(Model):
    """T1 to T3 times a number. `emulation` names one of the op's that they come from beside its own. `strict` adds a
    bound: the error of the op's peer, twice, and an ulp."""

    times: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    emulation: str | None = None
    strict: bool = False
    reason: Reason | None = None

    @model_validator(mode="after")
    def _reasoned(self) -> Self:
        if self.reason is None and (self.times > 1 or self.emulation is not None):
            raise ValueError("a tolerance of more than 1 times the gate's own, or of another emulation, needs a reason")
        return self


class OwnCase(Model):
    """One more case of the matrix, judged with two seeds; the sizes of `shape` are in the op's order."""

    shape: tuple[PositiveInt, ...] = Field(min_length=1)
    distribution: str = "randn"


class Omission(Model):
    """A distribution of inputs that the family is not judged on."""

    distribution: str
    reason: Reason


class GatePolicy(Model):
    """The table [gate] of a kernel.toml."""

    tolerance: Tolerance = Tolerance()
    cases: tuple[OwnCase, ...] = ()
    without: tuple[Omission, ...] = ()
    equals_baseline: Reason | None = Field(default=None, description="why the output may be bitwise a baseline's")

    @property
    def omitted(self) -> frozenset[str]:
        """The distributions that are left out."""
        return frozenset(each.distribution for each in self.without)

    @property
    def looser(self) -> tuple[str, ...]:
        """Where the gate looked away, a sentence each, with its reason."""
        said = [f"not judged on inputs {each.distribution}: {each.reason}" for each in self.without]
        of = self.tolerance
        if of.times > 1 or of.emulation is not None:
            named = f" of {of.emulation}" if of.emulation is not None else ""
            times = f" times {of.times:g}" if of.times != 1 else ""
            said.insert(0, f"tolerances{named}{times}: {of.reason}")
        if self.equals_baseline is not None:
            said.append(f"may give bitwise what a baseline gives: {self.equals_baseline}")
        return tuple(said)


def error_in_tolerances(error: float, tolerance: float) -> float:
    """error / tolerance, where no error is within any tolerance and NaN within none."""
    if error == 0:
        return 0.0
    return error / tolerance if tolerance > 0 and not math.isnan(error) else math.inf


class CaseErrors(Model):
    """Errors of one output against the float64 reference, each beside its tolerance (docs/method/gate.md, T0 to T3)."""

    nonfinite: int
    max_abs: float
    max_abs_tol: float
    row_rel: float
    row_rel_tol: float
    slice_rel: float
    slice_rel_tol: float
    bias: float = Field(description="mean of output - reference, signed")
    worst_index: tuple[int, ...] = Field(description="place of the largest absolute error")
    worst_value: float
    worst_reference: float
    first_bad_row: tuple[int, ...] | None = Field(description="place of the first row out of tolerance")
    bad_rows: float = Field(description="fraction of rows out of tolerance")
    peer_ratio: float | None = Field(
        default=None, description="largest absolute error over that of the op's peer among the baselines, same inputs"
    )

    @property
    def rules(self) -> dict[str, tuple[float, float]]:
        """The error and the tolerance of each of T1 to T3."""
        by_row, by_slice = (self.row_rel, self.row_rel_tol), (self.slice_rel, self.slice_rel_tol)
        return {"T1": (self.max_abs, self.max_abs_tol), "T2": by_row, "T3": by_slice}

    @property
    def failed_rule(self) -> str | None:
        """The first of T0..T3 that the output breaks. Written as `not <=`, so that NaN fails."""
        broken = (rule for rule, (error, tolerance) in self.rules.items() if not error <= tolerance)
        return "T0" if self.nonfinite else next(broken, None)

    @property
    def worst_ratio(self) -> float:
        """Largest error in units of its tolerance; above 1 is a failure."""
        return max(error_in_tolerances(*each) for each in self.rules.values())


class Extent(Model):
    """Which part of an output is wrong, or differs between two launches on the same input."""

    rows: int = Field(description="rows that are affected, of `of_rows`")
    of_rows: int
    slices: int = Field(description="slices that are affected, of `of_slices`")
    of_slices: int
    columns: tuple[int, ...] = Field(description="columns that are affected in any row")
    of_columns: int
    tile: int = Field(description="rows of the variant's own tile")
    rows_of_tile: tuple[int, ...] = Field(description="positions within a tile at which a row is affected")
    tiles: int = Field(description="tiles of which a row is affected")
    largest: float = Field(description="largest difference; infinite where a number is not finite")
    first: tuple[int, int] | None = Field(default=None, description="slice, and row in it, of the first affected row")

    @property
    def tail(self) -> int | None:
        """How many rows at the end of every slice are affected, where no others are; else None."""
        if self.first is None or self.first[0] or not self.first[1] or self.slices != self.of_slices:
            return None
        count = self.of_rows // self.of_slices - self.first[1]
        return count if self.rows == count * self.of_slices else None

    @property
    def affected(self) -> str:
        """Which rows, in words: the tail of every slice, or how many and the first."""
        if self.tail is not None:
            which = "the last row" if self.tail == 1 else f"the last {self.tail} rows"
            slices = f" in each of {self.of_slices} slices" if self.of_slices > 1 else ""
            return f"{which} of {self.of_rows // self.of_slices}{slices}"
        first = "" if self.first is None else f", the first is row {self.first[1]} of slice {self.first[0]}"
        return f"{self.rows} of {self.of_rows} rows{first}"


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
    hint: str | None = Field(default=None, description="what experiments after the failure showed of its cause")
    note: str | None = Field(default=None, description="why the check is unavailable, or what it saw")


class ReportedIdentity(Model):
    """What the loaded library said of itself."""

    abi_version: int
    build_id: str
    macros: dict[str, str]


class GateReport(Model):
    """What the gate found, in the order it looked; the first failure stopped it."""

    schema_version: Literal[3] = 3
    artifact: str = Field(description="digest of the artifact: the build id that the library must report")
    required: tuple[str, ...] = Field(description="codes of the checks without a pass of which there is no latency")
    policy: GatePolicy = Field(default=GatePolicy(), description="what the family's kernel.toml changes of the gate")
    identity: ReportedIdentity | None = None
    checks: tuple[CheckResult, ...]
    fault: Fault | None = None

    @property
    def passed(self) -> bool:
        """True when nothing failed and every required check ran: absence is no pass."""
        done = {check.code for check in self.checks if check.status == "pass"}
        return self.fault is None and bool(self.required) and {*self.required} <= done

    @property
    def failed(self) -> CheckResult | None:
        """The check that failed first. A sanitizer may have run after it."""
        return next((check for check in self.checks if check.status == "fail"), None)

    def extended(self, checks: tuple[CheckResult, ...], fault: Fault | None) -> Self:
        """This report with later checks (soak, after timing, sanitizers) appended."""
        return self.model_copy(update={"checks": self.checks + checks, "fault": fault})


class ReferenceCheck(Model):
    """One of the op's baselines against the float64 reference on one case: the dual reference."""

    backend: str = Field(description="the baseline's name")
    case: str
    errors: CaseErrors | None = Field(description="null where the baseline does not take the case")

    @property
    def failed_rule(self) -> str | None:
        """The rule that the baseline itself breaks."""
        return None if self.errors is None else self.errors.failed_rule
