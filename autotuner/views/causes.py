"""What every code of a fault asserts, gathered from the rooms that give the codes; and why a variant perhaps failed,
from the pattern of the failure.

A cause is named only where the pattern points to it, and as likely, never as certain.
"""

import re
from collections.abc import Sequence

from autotuner.forge import build as build_faults
from autotuner.gate.check import RACE
from autotuner.gate.gate import meanings as gate_meanings
from autotuner.ops import Op
from autotuner.race import faults as measure_faults
from autotuner.run import faults as run_faults
from autotuner.values import codes
from autotuner.values.gate_report import CaseResult, Extent, GateReport
from autotuner.values.outcome import Outcome
from autotuner.values.verdict import Fault, Meaning

REVOKED = Meaning("nothing that was found later took the result back")
_SIGNAL = re.compile(r"signal\D{0,3}(\d+)", re.IGNORECASE)
_LAST_DIGITS = 2.0**-8
"""Largest difference between two launches, absolute, that the order of a sum may explain."""


def meanings(op: Op) -> dict[str, Meaning]:
    """By code, for a variant of the op."""
    others = {**measure_faults.MEANINGS, **build_faults.MEANINGS, **run_faults.MEANINGS, "store.revoked": REVOKED}
    return {**gate_meanings(op), **others}


def likely_cause(outcome: Outcome, fault: Fault, found: CaseResult | None, op: Op) -> str | None:
    """What the pattern of a failure points to, in words; None where it points to nothing."""
    if fault.code == "process.signal":
        number = _SIGNAL.search(fault.detail)
        usual = run_faults.SIGNALS.get(int(number.group(1))) if number else None
        checks = outcome.gate.checks if outcome.gate is not None else ()
        if usual is None or any(check.code == codes.MEMORY for check in checks):
            return usual
        return f"{usual}; `autotuner gate --sanitize` on it names the line of a wrong access"
    stale = _cause_of_stale(outcome.gate, found)
    if stale is not None:
        return stale
    failed = outcome.gate.failed if outcome.gate is not None else None
    if failed is not None and failed.hint is not None:
        return failed.hint
    where = failed.differs if failed is not None else None
    if fault.code == codes.UNWRITTEN and where is not None and where.tail is not None:
        return f"nobody writes {where.affected}: a dropped tail, after the last whole group of rows"
    if found is None:
        meaning = meanings(op).get(fault.code)
        return _cause_of_difference(fault.code, outcome.gate) or (meaning.cause if meaning is not None else None)
    if found.errors.nonfinite:
        return op.words.nonfinite
    return _cause_by_rows(outcome, found, op)


def _cause_of_stale(gate: GateReport | None, found: CaseResult | None) -> str | None:
    """For an output that depends on what memory held before the launch."""
    check = gate.failed if gate is not None else None
    if check is None or not check.stale:
        return None
    affected = found.extent if found is not None else check.differs
    part = _part_of_tiles(affected) if affected is not None else None
    where = f"; {part} are affected" if part else ""
    return f"the output depends on what memory held before the launch: {RACE}{where}"


def _cause_of_difference(code: str, gate: GateReport | None) -> str | None:
    """What the place of a difference between two launches on the same input points to."""
    failed = gate.failed if gate is not None else None
    differs = failed.differs if failed is not None else None
    if differs is None or code not in (codes.REPEAT, codes.SOAK):
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
        if not 0 < len(extent.columns) <= extent.of_columns // 2:
            return f"every row is off, so {op.words.every_row}"
        columns = f"{len(extent.columns)} of {extent.of_columns} columns, from {extent.columns[0]} on"
        return f"every row is off, in {columns}: {op.words.some_columns}"
    if before and row == 0 and abs(bad * slices - (slices - before)) < 0.02:
        first = op.place(found.errors.first_bad_row[:-1])
        return f"every slice from {first} on is wrong and none before: how a slice is addressed"
    if row > 0 and abs(bad * rows - (rows - row)) < 0.5:
        return _cause_of_tail(outcome, rows, row, op)
    part = _part_of_tiles(extent)
    if part is None:
        return None
    return f"only {part} are wrong: a mask that goes by tiles, or work that some threads of a block do otherwise"


def _cause_of_tail(outcome: Outcome, rows: int, row: int, op: Op) -> str:
    """Every row from `row` on is bad and none before."""
    count = rows - row
    tile = outcome.variant.parameters.get("BLOCK_M")
    if isinstance(tile, int) and tile > 0 and count == rows % tile:
        return f"only the {count} rows after the last whole tile of BLOCK_M={tile} are wrong: a dropped tail"
    macros = outcome.artifact.macros if outcome.artifact is not None else {}
    return op.words.tail(macros, row) or f"only the last {count} of {rows} rows are wrong: a dropped tail"
