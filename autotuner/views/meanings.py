"""What every code of a fault asserts, and what usually breaks it, gathered from the rooms that give the codes."""

from __future__ import annotations

from autotuner.forge import build as build_faults
from autotuner.gate.gate import meanings as gate_meanings
from autotuner.ops import Op
from autotuner.race import faults as measure_faults
from autotuner.run import faults as run_faults
from autotuner.values.verdict import Meaning

REVOKED = Meaning("nothing that was found later took the result back")


def meanings(op: Op) -> dict[str, Meaning]:
    """By code, for a variant of the op."""
    others = {**measure_faults.MEANINGS, **build_faults.MEANINGS, **run_faults.MEANINGS, "store.revoked": REVOKED}
    return {**gate_meanings(op), **others}
