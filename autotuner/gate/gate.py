"""The gate: the checks in order of cost; the first failure stops. Nothing switches one off (docs/method/gate.md)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from autotuner.gate import checks, invariants, recheck, sanitizer
from autotuner.gate.check import LAUNCH_FAULTS, Check, Failed, Subject, Unavailable
from autotuner.ops import Op, op_of
from autotuner.values import codes
from autotuner.values.gate_report import CheckResult, GateReport
from autotuner.values.outcome import Artifact
from autotuner.values.verdict import Fault, Meaning

if TYPE_CHECKING:
    from autotuner.forge.family import Claims
    from autotuner.gate.launching import Launching


def checks_of(op: Op) -> tuple[Check, ...]:
    """G0 to G5 for an op, in order of cost."""
    return (
        checks.conduct,
        checks.identity,
        checks.effect,
        checks.smoke,
        checks.quick,
        checks.copied,
        invariants.repeat,
        invariants.leak,
        *(invariants.of_op(invariant) for invariant in op.invariants),
        invariants.offset,
        invariants.far,
        invariants.flushed,
        invariants.misaligned,
        invariants.domain,
        invariants.stream,
        invariants.capture,
        checks.matrix,
        invariants.symmetry,
    )


def required(subject: Subject) -> tuple[str, ...]:
    """The codes of the checks without a pass of which the artifact has no latency."""
    return tuple(check.code for check in checks_of(op_of(subject.problem)) if check.required and check.applies(subject))


def run(launching: Launching, subject: Subject, more: Sequence[Check] = ()) -> GateReport:
    """The report on the artifact after the checks of its op and `more` of them: checks are added, never taken away."""
    due = [check for check in (*checks_of(launching.op), *more) if check.applies(subject)]
    bare = launching.artifact.interpreted
    needed = tuple(check.code for check in due if check.required and not (check.of_machine_code and bare))
    empty = GateReport(artifact=launching.artifact.digest, required=needed, policy=launching.claims.policy, checks=())
    results, fault = in_order(launching, due)
    return empty.model_copy(update={"identity": launching.reported}).extended(results, fault)


def in_order(launching: Launching, due: Sequence[Check]) -> tuple[tuple[CheckResult, ...], Fault | None]:
    """The checks up to the first failure; `say` hears the name of each before it starts."""
    done: list[CheckResult] = []
    for check in due:
        launching.say(check.code)
        result, fault = _done(launching, check)
        done.append(result)
        if fault is not None:
            return tuple(done), fault
    return tuple(done), None


def _done(launching: Launching, check: Check) -> tuple[CheckResult, Fault | None]:
    """One check, timed."""
    launching.begin(check)
    started = time.monotonic()
    fault, differs, stale, hint, status = None, None, False, None, "pass"
    try:
        if check.of_machine_code and launching.artifact.interpreted:
            raise Unavailable(f"{launching.claims.state}, a function of Python: it has no machine code to look at")
        note = check.run(launching)
        if launching.evidence.changes_floats():
            changed = checks.FLOATS_CHANGED
            raise Failed(changed.detail, code=changed.code, verdict=changed.verdict)
    except Failed as failed:
        fault, differs, stale, hint = failed.fault(check), failed.differs, failed.stale, failed.hint
        status, note = "fail", None
    except Unavailable as missing:
        status, note = "unavailable", str(missing)
    document = {
        "code": check.code,
        "status": status,
        "seconds": time.monotonic() - started,
        "launches": launching.launches,
        "cases": tuple(launching.results),
        "differs": differs,
        "stale": stale,
        "hint": hint,
        "note": note,
    }
    return CheckResult.model_validate(document), fault


def not_loaded(artifact: Artifact, claims: Claims, subject: Subject, check: Check, why: str) -> GateReport:
    """The report on a library that is not loaded, since it fails that check."""
    failed = CheckResult(code=check.code, status="fail", seconds=0.0)
    fault = Fault(verdict=check.verdict, code=check.code, detail=why)
    return GateReport(
        artifact=artifact.digest, required=required(subject), policy=claims.policy, checks=(failed,), fault=fault
    )


def meanings(op: Op) -> dict[str, Meaning]:
    """What each stable code of the gate asserts and what usually breaks it: of every check on a variant of the op, and
    of every fault that one may end with."""
    found = dict(LAUNCH_FAULTS)
    for check in (*checks_of(op), checks.soak(), checks.many(0.0)):
        found |= {check.code: Meaning(check.asserts, check.cause), **check.faults}
    found[codes.LIMITS] = Meaning("registers, shared memory and block size fit the device")
    return {**found, **recheck.MEANINGS, **{level.code: level.meaning for level in sanitizer.LEVELS}}
