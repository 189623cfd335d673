"""A check of the gate: one object that says what it asserts, when it is required, and does it.

Nothing here imports torch, and neither do the modules that define checks: who reads a report wants the words alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from autotuner.values.gate_report import Extent
from autotuner.values.problem import Problem
from autotuner.values.verdict import Fault, Meaning, SystemFault, Verdict

if TYPE_CHECKING:
    from autotuner.gate.cases import Case
    from autotuner.gate.launching import Launching


class Subject(NamedTuple):
    """What is known of an artifact before it is judged, and decides which checks apply."""

    problem: Problem
    """Its compile-time part is the artifact's."""
    streams: bool
    """The device has streams."""
    bounded: bool
    """The artifact must refuse some lengths."""


def always(subject: Subject) -> bool:
    """For every artifact."""
    return True


class Check(NamedTuple):
    """One check. `run` raises Failed or Unavailable, and may return a note for the report."""

    code: str
    """Stable: reports, stores and documents name it."""
    asserts: str
    run: Callable[[Launching], str | None]
    cause: str | None = None
    """What usually breaks it."""
    verdict: Verdict = Verdict.INCORRECT
    """On an artifact that fails it, unless the failure names another."""
    applies: Callable[[Subject], bool] = always
    """Whether it is done."""
    required: bool = True
    """Without a pass of it, where it applies, there is no latency."""
    of_machine_code: bool = False
    """It looks at machine code: of a function of Python it is unavailable, and not required."""
    faults: Mapping[str, Meaning] = {}
    """Further codes that a failure of it may have."""


def check(
    code: str, asserts: str, cause: str | None = None, **more: Any
) -> Callable[[Callable[[Launching], str | None]], Check]:
    """Makes a check of the function that does it. `more`: what else a Check has."""
    return lambda run: Check(code, asserts, run, cause, **more)


class Failed(Exception):
    """Raised inside a check, turned into the report's fault at its border. Code and verdict are the check's own where
    none is named."""

    def __init__(
        self,
        detail: str,
        case: Case | None = None,
        code: str | None = None,
        verdict: Verdict | None = None,
        system: SystemFault | None = None,
        differs: Extent | None = None,
        stale: bool = False,
        hint: str | None = None,
    ) -> None:
        super().__init__(detail)
        self._detail, self._case, self._code, self._verdict = detail, case, code, verdict
        self.system, self.differs, self.stale, self.hint = system, differs, stale, hint

    def fault(self, check: Check) -> Fault:
        """As the report on the check has it."""
        return Fault(
            verdict=self._verdict or check.verdict,
            code=self._code or check.code,
            detail=self._detail,
            case=self._case.name if self._case is not None else None,
            system=self.system,
        )


class Unavailable(Exception):
    """A check could not run here for want of a tool, which the message names; absence is no pass."""


RULES = {
    "T0": "every element is finite",
    "T1": "the largest absolute error is within what rounding in the element type explains",
    "T2": "no row's largest error, relative to the row, is out of what rounding explains",
    "T3": "no slice's error norm, relative to the slice, is out of what rounding explains",
}
"""The rules by which an output is compared with the reference (tolerance.py)."""

RACE = "a race (a missing barrier), or memory that is read before it is written"
ENDLESS = "an endless loop, or a barrier that not every thread reaches"

LAUNCH_FAULTS = {
    "G1.status": Meaning("the launch reports success"),
    "G1.device": Meaning(
        "the device reports no error after the launch",
        "a read or write of memory that is not there, or an assertion or trap in the kernel",
    ),
    "G1.deadline": Meaning("the launch ends", ENDLESS),
    "G1.inputs": Meaning(
        "the inputs are bitwise the same after the launch",
        "a write through an input pointer, such as a scaling in place",
    ),
    "G1.guard": Meaning(
        "nothing is written outside the tensors",
        "a write before the start or past the end of a tensor: a missing bounds check at a ragged edge",
    ),
    "G1.workspace": Meaning("the variant asks for a workspace of reasonable size"),
}
"""With these any check may end that launches."""


def rules(level: str, where: str) -> dict[str, Meaning]:
    """The codes of the rules on one level of the gate."""
    return {f"{level}.{rule}": Meaning(f"{where}: {asserts}") for rule, asserts in RULES.items()}
