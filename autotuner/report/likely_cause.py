"""Why a variant perhaps failed, from the pattern of the failure.

A cause is named only where the pattern points to it, and as likely, never as certain.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from autotuner.gate.meanings import CAUSES, SIGNALS
from autotuner.values.gate_report import CaseResult, Extent, GateReport
from autotuner.values.outcome import Outcome

SHAPE = re.compile(r"(\d+)x(\d+)x(\d+)x(\d+)(?: (\w+))?")
"""Batch, heads, rows, keys and distribution in the name of a case."""
_SIGNAL = re.compile(r"signal\D{0,3}(\d+)", re.IGNORECASE)
_RACE = CAUSES["G3.repeat"]
_LAST_DIGITS = 2.0**-8
"""Largest difference between two launches, absolute, that the order of a sum may explain."""


def likely_cause(outcome: Outcome, code: str, detail: str, found: CaseResult | None) -> str | None:
    """What the pattern of a failure points to, in words; None where it points to nothing."""
    if code == "process.signal":
        number = _SIGNAL.search(detail)
        return SIGNALS.get(int(number.group(1))) if number else None
    stale = _cause_of_stale(outcome.gate, found)
    if stale is not None:
        return stale
    if found is None:
        return _cause_of_difference(code, outcome.gate) or CAUSES.get(code)
    if found.errors.nonfinite:
        return (
            "exp overflowed (the row's maximum is not subtracted, or not the current one), a row with no visible key"
            " was divided by 0, or memory was read before it was written"
        )
    return _cause_by_rows(outcome, found)


def _cause_of_stale(gate: GateReport | None, found: CaseResult | None) -> str | None:
    """For an output that depends on what memory held before the launch."""
    check = gate.checks[-1] if gate is not None and gate.checks else None
    if check is None or not check.stale:
        return None
    affected = found.extent if found is not None else check.differs
    part = _part_of_tiles(affected) if affected is not None else None
    where = f"; {part} are affected" if part else ""
    return f"the output depends on what memory held before the launch: {_RACE}{where}"


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
    if differs.heads == 1 and differs.of_heads > 1:
        return f"one (batch, head) of {differs.of_heads} differs: {_RACE}, in a block that is not like the others"
    return _RACE


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


def _cause_by_rows(outcome: Outcome, found: CaseResult) -> str | None:
    """What the pattern of bad rows points to."""
    shape, first = SHAPE.search(found.case), found.errors.first_bad_row
    if shape is None or first is None:
        return None
    batch, heads, rows = (int(shape.group(i)) for i in (1, 2, 3))
    head, row = first[:-1], first[-1]
    bad_a_head = found.errors.bad_rows * rows
    if found.errors.bad_rows > 0.99:
        return _cause_for_all_rows(found)
    before = head[0] * heads + head[1]
    if before and row == 0 and abs(found.errors.bad_rows * batch * heads - (batch * heads - before)) < 0.02:
        return f"every head from {place_of(head)} on is wrong and none before: the addressing of batch or head"
    if row > 0 and abs(bad_a_head - (rows - row)) < 0.5:
        return _cause_of_tail(outcome, rows, row)
    part = _part_of_tiles(found.extent) if found.extent is not None else None
    if part is None:
        return None
    return f"only {part} are wrong: a mask that goes by tiles, or work that some threads of a block do otherwise"


def _cause_for_all_rows(found: CaseResult) -> str:
    """Every row is bad: perhaps in some columns only."""
    extent = found.extent
    if extent is not None and 0 < len(extent.columns) <= extent.of_columns // 2:
        columns = f"{len(extent.columns)} of {extent.of_columns} columns, from {extent.columns[0]} on"
        return f"every row is off, in {columns}: a part of V, or of the accumulator, is wrong or written twice"
    return "every row is off, so something that they share: scale, normaliser, a lost key, a wrong tensor"


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


def place_of(index: tuple[int, ...]) -> str:
    """Where an element or a row of the output is, in words."""
    return ", ".join(f"{name} {i}" for name, i in zip(("batch", "head", "row", "column"), index, strict=False))
