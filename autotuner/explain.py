"""An outcome in words: what a variant achieved, or which check turned it down, where, by how much and perhaps why.

A cause is named only where the pattern of the failure points to it, and as likely, never as certain.
"""

from __future__ import annotations

import math
import re
import statistics

from pydantic import ConfigDict, Field

from autotuner.model import Model
from autotuner.outcome import (
    Artifact,
    CaseErrors,
    CaseResult,
    GateReport,
    Measurement,
    Outcome,
    Timing,
    Verdict,
    error_in_tolerances,
)

_RULES = {
    "T0": "every element is finite",
    "T1": "the largest absolute error is within twice that of a low-precision emulation",
    "T2": "no row's largest error, relative to the row, is out of what rounding explains",
    "T3": "no head's error norm, relative to the head, is out of what rounding explains",
}

MEANINGS: dict[str, str] = {
    "G0.identity": "the loaded library is the one that was asked for: build id and every macro",
    "G0.effect": "the machine code shows that the parameters took effect",
    "G0.limits": "registers, shared memory and block size fit the device",
    "G1.status": "the launch reports success",
    "G1.device": "the device reports no error after the launch",
    "G1.deadline": "the launch ends",
    "G1.unwritten": "every element of the output is written (it is poisoned with NaN before the launch)",
    "G1.inputs": "Q, K and V are bitwise the same after the launch",
    "G1.guard": "nothing is written outside the tensors",
    "G1.workspace": "the variant asks for a workspace of reasonable size",
    **{f"G2.{rule}": f"quick cases: {meaning}" for rule, meaning in _RULES.items()},
    "G3.repeat": "the same input gives the same bits, whatever ran before",
    "G3.scale_v": "4 V gives exactly 4 O",
    "G3.permute": "permuting the (batch, head) slices permutes the output, nothing else",
    "G3.future": "under a causal mask, later keys and values do not reach earlier rows",
    "G3.ones": "V = 1 gives O = 1: the weights of each row sum to 1",
    "G3.offset": "tensors 16 and 32 bytes past an aligned address give the same bits",
    "G3.misaligned": "a misaligned or strided tensor is refused before any launch",
    "G3.domain": "lengths other than those compiled in are refused before any launch",
    "G3.float_env": "the launch leaves rounding mode and subnormal handling as they were",
    "G4.stream": "all work goes to the caller's stream: inputs that arrive late on it are waited for",
    "G4.capture": "a launch can be captured into a graph, and its replay computes anew",
    **{f"G5.{rule}": f"full matrix: {meaning}" for rule, meaning in _RULES.items()},
    "G6.soak": "hundreds of launches under memory traffic give the same bits",
    "G7.output": "the output of the last timed launch is still right",
    "G7.inputs": "the inputs are unchanged after the timing",
    "measure.launch": "the variant can be launched, and captured, on the problem that is tuned",
    "measure.device": "the device reports no error while the variant is timed",
    "measure.drift": "beside the variant, SDPA takes what it took at calibration",
    "build.failed": "the compiler accepts the variant",
    "build.timeout": "the compiler finishes within its deadline",
    "process.signal": "the process that runs the variant is not killed by a signal",
    "process.exit": "the process that runs the variant does not exit by itself",
    "process.deadline": "the variant finishes within its deadline",
    "process.garbage": "what the process that runs the variant sends back can be read",
    "store.revoked": "nothing that was found later took the result back",
}
"""What each check of the gate asserts, by its stable code."""

_RACE = "a race (a missing barrier), or memory that is read before it is written"
_CAUSES = {
    "G0.identity": "a stale or foreign library was loaded under this name",
    "G0.effect": "a parameter that the source ignores, or a path that the compiler did not take",
    "G1.device": "a read or write of memory that is not there, or an assertion or trap in the kernel",
    "G1.deadline": "an endless loop, or a barrier that not every thread reaches",
    "G1.unwritten": "rows or columns that no thread writes, or an arithmetic that gives NaN even on ordinary input",
    "G1.inputs": "a write through an input pointer, such as a scaling of Q in place",
    "G1.guard": "a write before the start or past the end of a tensor: a missing bounds check at a ragged edge",
    "G3.repeat": _RACE,
    "G3.scale_v": "a constant in the arithmetic (an epsilon, a clamp), or a result that does not come from V",
    "G3.permute": "the addressing of batch or head, or a result that depends on the order of blocks",
    "G3.future": "the causal mask lets later keys through",
    "G3.ones": "the normaliser is not the sum of the weights in use: keys lost or counted twice, or padding counted",
    "G3.offset": "an assumption on alignment beyond 16 bytes, or a fixed address",
    "G4.stream": "a launch on a stream of its own, or on the default stream",
    "G4.capture": "work that a graph cannot hold (an allocation, a wait), or an answer kept from an earlier call",
    "G6.soak": _RACE,
    "G7.output": "right on the first launches and wrong later: kept state, a race, or a cached result",
    "G7.inputs": "a write through an input pointer that the first launches did not show",
    "process.deadline": "an endless loop, or a barrier that not every thread reaches",
}
_SIGNALS = {
    4: "an instruction that this processor does not have (built for another architecture)",
    6: "an assertion or the C++ runtime aborted: an uncaught exception, or damaged heap memory",
    7: "an access that the memory system refuses: a misaligned or unbacked address",
    8: "an integer division by zero",
    9: "killed from outside: out of memory, or by a person",
    11: "usually a read or write past a tensor's end: on the CPU every tensor ends at an unmapped page",
}
_DISTRIBUTIONS = {
    "randn": "standard normal",
    "large": "normal, Q times 5, K and V times 3",
    "huge": "normal, Q and K times 16: exp overflows unless the maximum is subtracted",
    "one_hot": "each row attends to one key: a single wrong key shows at full size",
    "big_v": "normal, V times 1000",
    "tiny_v": "normal, V times 1e-6",
    "zero_q": "Q = 0: every weight is equal",
    "uniform01": "uniform between 0 and 1",
    "const_v": "V constant",
}
_SHAPE = re.compile(r"(\d+)x(\d+)x(\d+)x(\d+)(?: (\w+))?")
_SIGNAL = re.compile(r"signal\D{0,3}(\d+)", re.IGNORECASE)
_STDERR_LINES = 12


class GateSummary(Model):
    """A gate report in figures. As JSON, a ratio that is not finite is null."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="null")

    passed: tuple[str, ...] = Field(description="codes of the checks that passed, in order")
    unavailable: tuple[str, ...] = Field(description="codes of the checks that could not run here; absence is no pass")
    cases: int = Field(description="outputs compared with the float64 reference")
    worst_ratio: float | None = Field(description="largest error over all cases, in units of its tolerance")

    @classmethod
    def of(cls, report: GateReport) -> GateSummary:
        """The figures of a report."""
        ratios = [each.errors.worst_ratio for check in report.checks for each in check.cases]
        return cls(
            passed=tuple(check.code for check in report.checks if check.status == "pass"),
            unavailable=tuple(check.code for check in report.checks if check.status == "unavailable"),
            cases=len(ratios),
            worst_ratio=max(ratios, default=None),
        )


def explain(outcome: Outcome) -> list[str]:
    """The outcome for a person, a sentence or two a line; the first line is the verdict."""
    if outcome.verdict.has_latency and outcome.measurement is not None:
        return _achieved(outcome, outcome.measurement)
    return _rejected(outcome)


def _achieved(outcome: Outcome, measurement: Measurement) -> list[str]:
    lines = [
        f"{outcome.verdict}: {measurement.speedup:.3f} times as fast as the baseline",
        f"Variant: {outcome.variant}",
        *(_timing_line(timing) for timing in measurement.timings),
    ]
    if measurement.censored or outcome.verdict == Verdict.RACED_OUT:
        lines.append("Stopped early because it was clearly slower: the figures are estimates.")
    if outcome.verdict == Verdict.DEDUPLICATED:
        lines.append(f"The same program as artifact {(outcome.original or '?')[:12]}, which was measured in its place.")
    if outcome.gate is not None:
        lines.append(_gate_line(GateSummary.of(outcome.gate)))
    return lines


def _timing_line(timing: Timing) -> str:
    log = timing.log_ratio
    times = f"{_median(timing.variant_us):.2f} us a forward against {_median(timing.baseline_us):.2f} us"
    bounded = math.isfinite(log.low) and math.isfinite(log.high)
    interval = (
        f"{log.level:.0%} interval {math.exp(-log.high):.3f} to {math.exp(-log.low):.3f}"
        if bounded
        else "too few blocks for an interval"
    )
    speedup = f"speedup {math.exp(-log.median):.3f} ({interval}, {len(timing.variant_us)} blocks)"
    return f"{timing.problem}: {times} of {timing.baseline}; {speedup}"


def _median(times: tuple[float, ...]) -> float:
    return statistics.median(times) if times else math.nan


def _gate_line(summary: GateSummary) -> str:
    line = f"Gate: {len(summary.passed)} checks passed, {summary.cases} outputs compared with the float64 reference"
    if summary.worst_ratio is not None:
        line += f", the worst error {summary.worst_ratio:.2f} of its tolerance"
    if summary.unavailable:
        line += f"; could not run here: {', '.join(summary.unavailable)}"
    return line + "."


def _rejected(outcome: Outcome) -> list[str]:
    fault = outcome.fault or (outcome.gate.fault if outcome.gate is not None else None)
    lines = [f"{outcome.verdict}" if fault is None else f"{outcome.verdict}: {fault.code}"]
    if not outcome.verdict.judges:
        lines.append("This says nothing about the variant: the machinery around it failed, and it is tried again.")
    lines.append(f"Variant: {outcome.variant}")
    if fault is not None:
        if fault.code in MEANINGS:
            lines.append(f"Check {fault.code} asserts: {MEANINGS[fault.code]}.")
        if fault.case is not None:
            lines.append(f"Case: {_case_in_words(fault.case, outcome.artifact)}")
        lines.append(f"Found: {fault.detail}")
        found = _failing_case(outcome, fault.case)
        if found is not None:
            lines += _errors_in_words(found.errors)
        cause = _cause(outcome, fault.code, fault.detail, found)
        if cause:
            lines.append(f"Likely cause: {cause}.")
    return lines + _stderr(outcome.stderr_tail)


def _case_in_words(case: str, artifact: Artifact | None) -> str:
    shape = _SHAPE.search(case)
    if shape is None:
        return case
    batch, heads, seq_q, seq_k, distribution = shape.groups()
    words = f"{case}: batch {batch}, heads {heads}, {seq_q} query rows, {seq_k} keys"
    if artifact is not None:
        mask = "causal" if artifact.causal else "no mask"
        words += f", head_dim {artifact.head_dim}, {artifact.dtype}, {mask}"
    if distribution in _DISTRIBUTIONS:
        words += f"; inputs {distribution}: {_DISTRIBUTIONS[distribution]}"
    return words


def _failing_case(outcome: Outcome, name: str | None) -> CaseResult | None:
    """The result that broke the tolerance: the last one of that name, because the first failure stopped the gate."""
    if outcome.gate is None:
        return None
    results = [each for check in outcome.gate.checks if check.status == "fail" for each in check.cases]
    broken = [each for each in results if each.errors.failed_rule is not None and name in (None, each.case)]
    return broken[-1] if broken else None


def _errors_in_words(errors: CaseErrors) -> list[str]:
    lines = []
    if errors.nonfinite:
        lines.append(f"Not finite: {errors.nonfinite} elements (NaN or infinity).")
    if errors.first_bad_row is not None:
        lines.append(
            f"First bad row: {_place(errors.first_bad_row)}; {errors.bad_rows:.1%} of rows are out of tolerance."
        )
    where = _place(errors.worst_index)
    lines.append(
        f"Worst element: {where}: {errors.worst_value:.7g} where the reference has {errors.worst_reference:.7g}."
    )
    lines += [
        f"{name}: {error:.3g}, tolerance {tolerance:.3g} ({error_in_tolerances(error, tolerance):.3g} times)."
        for name, error, tolerance in (
            ("Largest absolute error (T1)", errors.max_abs, errors.max_abs_tol),
            ("Largest error relative to its row (T2)", errors.row_rel, errors.row_rel_tol),
            ("Largest error norm relative to its head (T3)", errors.head_rel, errors.head_rel_tol),
        )
    ]
    return lines


def _place(index: tuple[int, ...]) -> str:
    return ", ".join(f"{name} {i}" for name, i in zip(("batch", "head", "row", "column"), index, strict=False))


def _cause(outcome: Outcome, code: str, detail: str, found: CaseResult | None) -> str | None:
    if code == "process.signal":
        number = _SIGNAL.search(detail)
        return _SIGNALS.get(int(number.group(1))) if number else None
    if found is None:
        return _CAUSES.get(code)
    if found.errors.nonfinite:
        return (
            "exp overflowed (the row's maximum is not subtracted, or not the current one), a row with no visible key"
            " was divided by 0, or memory was read before it was written"
        )
    return _cause_by_rows(outcome, found)


def _cause_by_rows(outcome: Outcome, found: CaseResult) -> str | None:
    """What the pattern of bad rows points to."""
    shape, first = _SHAPE.search(found.case), found.errors.first_bad_row
    if shape is None or first is None:
        return None
    batch, heads, rows = (int(shape.group(i)) for i in (1, 2, 3))
    head, row = first[:-1], first[-1]
    bad_a_head = found.errors.bad_rows * rows
    if found.errors.bad_rows > 0.99:
        return "every row is off, so something that they share: scale, normaliser, a lost key, a wrong tensor"
    before = head[0] * heads + head[1]
    if before and row == 0 and abs(found.errors.bad_rows * batch * heads - (batch * heads - before)) < 0.02:
        return f"every head from {_place(head)} on is wrong and none before: the addressing of batch or head"
    if row > 0 and abs(bad_a_head - (rows - row)) < 0.5:
        return _cause_of_tail(outcome, rows, row)
    return None


def _cause_of_tail(outcome: Outcome, rows: int, row: int) -> str:
    """Every row from `row` on is bad and none before."""
    causal = outcome.artifact is not None and outcome.artifact.causal
    count = rows - row
    tile = outcome.variant.parameters.get("BLOCK_M")
    if isinstance(tile, int) and tile > 0 and count == rows % tile:
        return f"only the {count} rows after the last whole tile of BLOCK_M={tile} are wrong: a dropped tail"
    if causal:
        return (
            f"every row from {row} on is wrong and none before: those that see keys from about position {row} on,"
            " so keys there are lost, shifted or masked wrongly"
        )
    return f"only the last {count} of {rows} rows are wrong: a dropped tail"


def _stderr(tail: str) -> list[str]:
    lines = [line for line in tail.strip().splitlines() if line.strip()]
    if not lines:
        return []
    return ["Last lines of its standard error:", *(f"  {line}" for line in lines[-_STDERR_LINES:])]
