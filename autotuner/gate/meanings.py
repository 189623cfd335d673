"""What each stable code of the gate asserts and what usually breaks it, gathered from the checks. Imports no torch."""

from __future__ import annotations

from autotuner.gate import checks, recheck, sanitizer
from autotuner.gate.check import LAUNCH_FAULTS
from autotuner.gate.gate import checks_of
from autotuner.ops import Op
from autotuner.values import codes
from autotuner.values.verdict import Meaning


def meanings(op: Op) -> dict[str, Meaning]:
    """By code, of every check on a variant of the op and of every fault that one may end with."""
    found = dict(LAUNCH_FAULTS)
    for check in (*checks_of(op), checks.soak(), checks.many(0.0)):
        found |= {check.code: Meaning(check.asserts, check.cause), **check.faults}
    limits = {codes.LIMITS: Meaning("registers, shared memory and block size fit the device")}
    return {
        **found,
        **limits,
        **recheck.MEANINGS,
        **{level.code: level.meaning for level in sanitizer.LEVELS},
    }
