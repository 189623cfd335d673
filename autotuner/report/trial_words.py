"""An outcome in words: what a variant achieved, or which check turned it down, where, by how much and perhaps why.

A cause is named only where the pattern of the failure points to it, and as likely, never as certain.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Sequence

from autotuner.build import faults as build_faults
from autotuner.gate.check import RACE
from autotuner.gate.meanings import meanings as gate_meanings
from autotuner.measure import faults as measure_faults
from autotuner.ops import Op, op_of
from autotuner.run import faults as run_faults
from autotuner.tuning.gate_summary import GateSummary
from autotuner.tuning.standings import Best
from autotuner.values.gate_report import CaseErrors, CaseResult, Extent, GateReport, error_in_tolerances
from autotuner.values.outcome import Artifact, Measurement, Outcome, Stop, Timing
from autotuner.values.verdict import Fault, Meaning, Verdict

_SHAPE = re.compile(r"\b(\d+(?:x\d+)*)(?: (\w+))?$")
_SIGNAL = re.compile(r"signal\D{0,3}(\d+)", re.IGNORECASE)
_STDERR_LINES = 12
_LAST_DIGITS = 2.0**-8
"""A difference between two launches that is smaller than this may be the order of a sum."""

_STOPS = {
    Stop.PRECISE: "its interval was narrow enough",
    Stop.STEADY: "more blocks would not have told more: the noise did not change any more",
    Stop.SLOWER: "it was shown to be slower than what it raced against; the figures are estimates from few blocks",
    Stop.HOPELESS: "it was clearly slower from the first blocks on; the figures are estimates from those",
    Stop.PROMOTED: "it was faster than what it raced against, by more than a tie, and took its place",
    Stop.LIMIT: "it had its largest number of blocks",
    Stop.LATE: "it took too long",
}


REVOKED = Meaning("nothing that was found later took the result back")


def meanings(op: Op) -> dict[str, Meaning]:
    """What every code of a fault asserts, and what usually breaks it."""
    others = {**measure_faults.MEANINGS, **build_faults.MEANINGS, **run_faults.MEANINGS, "store.revoked": REVOKED}
    return {**gate_meanings(op), **others}


def explain(outcome: Outcome, op: Op) -> list[str]:
    """The outcome for a person, a sentence or two a line; the first line is the verdict."""
    if outcome.verdict.has_latency and outcome.measurement is not None:
        return _achieved(outcome, outcome.measurement)
    return _rejected(outcome, op)


def explain_best(best: Best) -> list[str]:
    """The trial to use for a person: what the finals confirmed, where there were some, and what the search found."""
    confirmed, finals, entry = best.confirmed, best.finals, best.entry
    if confirmed is None or finals is None or entry.difference is None:
        return explain(best.outcome, _op(best))
    where = (
        f"finals {finals.id} of {finals.finished_at:%Y-%m-%d}: {finals.processes} processes x {finals.blocks} blocks"
    )
    others = [str(number) for number in best.tied if number != entry.number]
    lines = [
        f"Confirmed: {confirmed.mean:.3f} times as fast as the baseline"
        f" ({_ends(confirmed.low, confirmed.high, confirmed.level)}; {where}).",
    ]
    if best.crowned:
        lines.append("Crowned: faster than every other finalist and the baseline, by more than a tie.")
    elif others:
        lines.append(f"Tied with trial {', '.join(others)}: of these it is the preferred one. Nobody is crowned.")
    else:
        lines.append("It leads, but not shown to be faster than the baseline by more than a tie. Nobody is crowned.")
    first, *rest = explain(best.outcome, _op(best))
    biased = f"Search estimate, biased: {first}; {entry.difference:+z.1%} off what was confirmed."
    return [*lines, biased, *rest]


def _op(best: Best) -> Op:
    """What the best trial computes."""
    assert best.outcome.measurement is not None  # it was measured
    return op_of(best.outcome.measurement.timings[0].problem)


def explain_gate(outcome: Outcome, op: Op) -> list[str]:
    """What the gate alone found, for a person: no latency is mentioned."""
    if outcome.fault is not None or outcome.gate is None:
        return _rejected(outcome, op)
    return [f"passed: {outcome.variant}", _gate_line(GateSummary.of(outcome.gate))]


def _achieved(outcome: Outcome, measurement: Measurement) -> list[str]:
    lines = [
        f"{outcome.verdict}: {measurement.speedup:.3f} times as fast as the baseline",
        f"Variant: {outcome.variant}",
        *(_timing_line(timing) for timing in measurement.timings),
    ]
    lines += _race_lines(measurement)
    if outcome.verdict == Verdict.DEDUPLICATED:
        lines.append(f"The same program as artifact {(outcome.original or '?')[:12]}, which was measured in its place.")
    if outcome.gate is not None:
        lines.append(_gate_line(GateSummary.of(outcome.gate)))
    return lines


def _race_lines(measurement: Measurement) -> list[str]:
    """Whom it raced against, how that went, and why it ended."""
    lines = []
    if measurement.incumbent is not None and measurement.gain is not None:
        gain = measurement.gain
        found = _ends(math.exp(gain.low), math.exp(gain.high), gain.level)
        lines.append(
            f"Raced against artifact {measurement.incumbent[:12]}, the best until then:"
            f" t_variant / t_incumbent {math.exp(gain.mean):.4f} ({found})."
        )
    lines.append(f"The race ended because {_STOPS[measurement.stopped]}.")
    if measurement.discarded:
        lines.append(f"Blocks discarded, because the device throttled: {measurement.discarded}.")
    return lines


def _ends(low: float, high: float, level: float) -> str:
    """An interval, from the ratios at its ends."""
    if not (low > 0 and high < math.inf):
        return "too few blocks for an interval"
    return f"{level:.0%} interval {low:.3f} to {high:.3f}"


def _timing_line(timing: Timing) -> str:
    log = timing.log_ratio
    times = f"{_median(timing.variant_us):.2f} us a forward against {_median(timing.baseline_us):.2f} us"
    interval = _ends(math.exp(-log.high), math.exp(-log.low), log.level)
    speedup = f"speedup {math.exp(-log.median):.3f} ({interval}, {len(timing.variant_us)} blocks)"
    return f"{timing.problem}: {times} of {timing.baseline}; {speedup}"


def _median(times: tuple[float, ...]) -> float:
    return statistics.median(times) if times else math.nan


def _gate_line(summary: GateSummary) -> str:
    line = f"Gate: {len(summary.passed)} checks passed, {summary.cases} outputs compared with the float64 reference"
    if summary.worst_ratio is not None:
        line += f", the worst error {summary.worst_ratio:.2f} of its tolerance"
    if summary.peer_ratio is not None:
        line += f", errors {summary.peer_ratio:.2f} times those of the baseline that stands beside it in the median"
    if summary.looser:
        line += f"; the family's kernel.toml loosens the gate: {'; '.join(summary.looser)}"
    if summary.unavailable:
        line += f"; could not run here: {', '.join(summary.unavailable)}"
    return line + "."


def _rejected(outcome: Outcome, op: Op) -> list[str]:
    fault = outcome.fault or (outcome.gate.fault if outcome.gate is not None else None)
    lines = [f"{outcome.verdict}" if fault is None else f"{outcome.verdict}: {fault.code}"]
    if not outcome.verdict.judges:
        lines.append("This says nothing about the variant: the machinery around it failed, and it is tried again.")
    lines.append(f"Variant: {outcome.variant}")
    if fault is not None:
        meaning = meanings(op).get(fault.code)
        if meaning is not None:
            lines.append(f"Check {fault.code} asserts: {meaning.asserts}.")
        if fault.case is not None:
            lines.append(f"Case: {_case_in_words(fault.case, outcome.artifact, op)}")
        lines.append(f"Found: {fault.detail}")
        found = _failing_case(outcome, fault.case)
        if found is not None:
            lines += _errors_in_words(found.errors, op)
        cause = _cause(outcome, fault, found, op)
        if cause:
            lines.append(f"Likely cause: {cause}.")
    return lines + _stderr(outcome.stderr_tail)


def _case_in_words(case: str, artifact: Artifact | None, op: Op) -> str:
    found = _SHAPE.search(case)
    shape = tuple(int(size) for size in found[1].split("x")) if found is not None else ()
    if found is None or len(shape) != len(op.problem.DIMS):
        return case
    words = f"{case}: {op.words.case(shape, artifact.macros if artifact is not None else {})}"
    distribution = found[2]
    if distribution in op.words.distributions:
        words += f"; inputs {distribution}: {op.words.distributions[distribution]}"
    return words


def _failing_case(outcome: Outcome, name: str | None) -> CaseResult | None:
    """The result that broke the tolerance: the last one of that name, because the first failure stopped the gate."""
    if outcome.gate is None:
        return None
    results = [each for check in outcome.gate.checks if check.status == "fail" for each in check.cases]
    broken = [each for each in results if each.errors.failed_rule is not None and name in (None, each.case)]
    return broken[-1] if broken else None


def _errors_in_words(errors: CaseErrors, op: Op) -> list[str]:
    lines = []
    if errors.nonfinite:
        lines.append(f"Not finite: {errors.nonfinite} elements (NaN or infinity).")
    if errors.first_bad_row is not None:
        lines.append(
            f"First bad row: {_place(errors.first_bad_row, op)}; {errors.bad_rows:.1%} of rows are out of tolerance."
        )
    where = _place(errors.worst_index, op)
    lines.append(
        f"Worst element: {where}: {errors.worst_value:.7g} where the reference has {errors.worst_reference:.7g}."
    )
    lines += [
        f"{name}: {error:.3g}, tolerance {tolerance:.3g} ({error_in_tolerances(error, tolerance):.3g} times)."
        for name, error, tolerance in (
            ("Largest absolute error (T1)", errors.max_abs, errors.max_abs_tol),
            ("Largest error relative to its row (T2)", errors.row_rel, errors.row_rel_tol),
            ("Largest error norm relative to its slice (T3)", errors.slice_rel, errors.slice_rel_tol),
        )
    ]
    return lines


def _place(index: tuple[int, ...], op: Op) -> str:
    """Of the first output that has as many dimensions."""
    axes = next((output.axes for output in op.outputs if len(output.axes) >= len(index)), op.outputs[0].axes)
    return ", ".join(f"{name} {i}" for name, i in zip(axes, index, strict=False))


def _cause(outcome: Outcome, fault: Fault, found: CaseResult | None, op: Op) -> str | None:
    if fault.code == "process.signal":
        number = _SIGNAL.search(fault.detail)
        return run_faults.SIGNALS.get(int(number.group(1))) if number else None
    stale = _cause_of_stale(outcome.gate, found)
    if stale is not None:
        return stale
    if found is None:
        meaning = meanings(op).get(fault.code)
        return _cause_of_difference(fault.code, outcome.gate) or (meaning.cause if meaning is not None else None)
    if found.errors.nonfinite:
        return op.words.nonfinite
    return _cause_by_rows(outcome, found, op)


def _cause_of_stale(gate: GateReport | None, found: CaseResult | None) -> str | None:
    """For an output that depends on what memory held before the launch."""
    check = gate.checks[-1] if gate is not None and gate.checks else None
    if check is None or not check.stale:
        return None
    affected = found.extent if found is not None else check.differs
    part = _part_of_tiles(affected) if affected is not None else None
    where = f"; {part} are affected" if part else ""
    return f"the output depends on what memory held before the launch: {RACE}{where}"


def _cause_of_difference(code: str, gate: GateReport | None) -> str | None:
    """What the place of a difference between two launches on the same input points to."""
    differs = gate.checks[-1].differs if gate is not None and gate.checks else None
    if differs is None or code not in ("G3.repeat", "G6.soak"):
        return None
    where = _part_of_tiles(differs)
    if where is not None:
        return (
            f"{where} differ between runs: a missing barrier, after which the warps of those rows read what another"
            " warp has not written yet"
        )
    if differs.largest < _LAST_DIGITS:
        return "the last digits differ: sums whose order changes from run to run (atomics, or work that threads share)"
    if differs.slices == 1 and differs.of_slices > 1:
        return f"one slice of {differs.of_slices} differs: {RACE}, in a block that is not like the others"
    return RACE


def _part_of_tiles(extent: Extent) -> str | None:
    """Which rows of a tile are affected, in words, when it is a part of every tile that repeats."""
    if extent.tiles < 2:
        return None
    period = _period(extent.rows_of_tile, extent.tile)
    rows = sorted({row % period for row in extent.rows_of_tile})
    if not 0 < len(rows) < period:
        return None
    first, last = rows[0], rows[-1]
    if last - first + 1 == len(rows):
        which = f"row {first}" if len(rows) == 1 else f"rows {first} to {last}"
    else:
        which = f"rows {', '.join(map(str, rows[:6]))}{', ...' if len(rows) > 6 else ''}"
    return f"{which} of every {f'tile of {period}' if period == extent.tile else period} rows"


def _period(rows: Sequence[int], tile: int) -> int:
    """The smallest part of a tile in which the affected rows repeat."""
    found = set(rows)
    for period in range(1, tile):
        if tile % period == 0 and found == {row for row in range(tile) if row % period in {r % period for r in found}}:
            return period
    return tile


def _cause_by_rows(outcome: Outcome, found: CaseResult, op: Op) -> str | None:
    """What the pattern of bad rows points to."""
    extent = found.extent
    if extent is None or found.errors.first_bad_row is None:
        return None
    slices, rows = extent.of_slices, extent.of_rows // extent.of_slices
    before, row = extent.first or (0, 0)
    bad = found.errors.bad_rows
    if bad > 0.99:
        return _cause_for_all_rows(extent, op)
    if before and row == 0 and abs(bad * slices - (slices - before)) < 0.02:
        first = _place(found.errors.first_bad_row[:-1], op)
        return f"every slice from {first} on is wrong and none before: how a slice is addressed"
    if row > 0 and abs(bad * rows - (rows - row)) < 0.5:
        return _cause_of_tail(outcome, rows, row, op)
    part = _part_of_tiles(extent)
    if part is None:
        return None
    return f"only {part} are wrong: a mask that goes by tiles, or work that some threads of a block do otherwise"


def _cause_for_all_rows(extent: Extent, op: Op) -> str:
    """Every row is bad: perhaps in some columns only."""
    if 0 < len(extent.columns) <= extent.of_columns // 2:
        columns = f"{len(extent.columns)} of {extent.of_columns} columns, from {extent.columns[0]} on"
        return f"every row is off, in {columns}: {op.words.some_columns}"
    return f"every row is off, so {op.words.every_row}"


def _cause_of_tail(outcome: Outcome, rows: int, row: int, op: Op) -> str:
    """Every row from `row` on is bad and none before."""
    count = rows - row
    tile = outcome.variant.parameters.get("BLOCK_M")
    if isinstance(tile, int) and tile > 0 and count == rows % tile:
        return f"only the {count} rows after the last whole tile of BLOCK_M={tile} are wrong: a dropped tail"
    macros = outcome.artifact.macros if outcome.artifact is not None else {}
    return op.words.tail(macros, row) or f"only the last {count} of {rows} rows are wrong: a dropped tail"


def _stderr(tail: str) -> list[str]:
    lines = [line for line in tail.strip().splitlines() if line.strip()]
    if not lines:
        return []
    return ["Last lines of its standard error:", *(f"  {line}" for line in lines[-_STDERR_LINES:])]
