"""How judging a variant ended: a verdict, and the fault behind it."""

from enum import StrEnum
from typing import NamedTuple

from pydantic import Field

from autotuner.values.model import Model


class Verdict(StrEnum):
    """How judging a variant ended. `OPTUNA_STATE` in search.py maps each to what Optuna is told."""

    MEASURED = "measured"
    DEDUPLICATED = "deduplicated"
    RACED_OUT = "raced_out"
    OVER_LIMITS = "over_limits"
    BUILD_FAILED = "build_failed"
    BUILD_TIMEOUT = "build_timeout"
    LAUNCH_FAILED = "launch_failed"
    INCORRECT = "incorrect"
    NONDETERMINISTIC = "nondeterministic"
    CORRUPTING = "corrupting"
    CRASHED = "crashed"
    HUNG = "hung"
    IMPOSSIBLE = "impossible"
    DISTURBED = "disturbed"
    INFRA_ERROR = "infra_error"
    ORACLE_ERROR = "oracle_error"

    @property
    def has_latency(self) -> bool:
        """True for the verdicts under which a variant has a latency; every other verdict has none anywhere."""
        return self in (Verdict.MEASURED, Verdict.DEDUPLICATED, Verdict.RACED_OUT)

    @property
    def words(self) -> str:
        """The verdict as a person reads it."""
        return {
            Verdict.DEDUPLICATED: "same program as another",
            Verdict.RACED_OUT: "stopped early",
            Verdict.INFRA_ERROR: "machine fault",
            Verdict.ORACLE_ERROR: "reference fault",
        }.get(self, self.value.replace("_", " "))

    @property
    def judges(self) -> bool:
        """False when the ending says nothing about the variant."""
        return self not in (Verdict.DISTURBED, Verdict.INFRA_ERROR, Verdict.ORACLE_ERROR)


class SystemFault(Model):
    """What the device or the operating system said, in its own numbers."""

    number: int | None = Field(default=None, description="the driver's error (CUresult), else the variant's own status")
    name: str | None = None
    sticky: bool = Field(default=False, description="the process could do nothing more on the device")
    exit_status: int | None = None
    signal: int | None = None


class Fault(Model):
    """A variant's fault: a value, not an exception. `code` is stable; `detail` explains it to a person."""

    verdict: Verdict
    code: str
    detail: str
    case: str | None = None
    system: SystemFault | None = None


class Meaning(NamedTuple):
    """What a stable code of a fault asserts, and what usually breaks it."""

    asserts: str
    cause: str | None = None
