"""What a race needs of a device: tracks, one a problem, and the arms that run on them."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, Self

from autotuner.values.outcome import Artifact
from autotuner.values.problem import Problem
from autotuner.values.verdict import Fault


class ArmError(Exception):
    """An arm cannot be run, and why: a fault, raised through the race."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.detail)
        self.fault = fault


class Arm(Protocol):
    """One side of a race."""

    calls: int
    """Forwards a sample."""
    waited: float
    """Of the seconds that the last sample came to those, at most, in which its threads waited for a CPU that something
    else had."""
    retaken: bool
    """Whether the last sample was taken more than once, as something held it up."""

    def __call__(self) -> float:
        """Takes a sample: seconds of one forward. Raises ArmError."""


class Clocks(NamedTuple):
    """How long the same forwards took, by two clocks; seconds."""

    host: float
    device: float


class VariantArm(Arm, Protocol):
    """The side of a built variant."""

    def recheck(self) -> Fault | None:
        """G7: what it wrote while it was timed is right, and nothing else was written. Raises ArmError."""

    def clocks(self, seconds: float) -> Clocks | None:
        """Forwards for about so long, by the host's clock and by the one of the samples; None where nothing is to be
        compared.

        Raises ArmError.
        """


class AuditArm(Protocol):
    """Samples of an arm in which something is written between the forwards, into its inputs, outputs and workspace."""

    def __call__(self, fresh: bool) -> float:
        """Seconds of one forward, what is written with it where that cannot be left out. `fresh`: every forward finds
        inputs that no call has seen, and poison elsewhere. Else the same bytes are written that are there already.

        Raises ArmError.
        """

    def recheck(self) -> Fault | None:
        """Whether the outputs of a fresh sample are right, the last one or one more. Raises ArmError."""


class PlainArm(Protocol):
    """Samples of the variant as a race has them."""

    def __call__(self) -> float:
        """Seconds of one forward right after another one. Raises ArmError."""

    def recheck(self) -> Fault | None:
        """G7 of the buffers, as `VariantArm.recheck`. Raises ArmError."""


class Audited(NamedTuple):
    """What an audit times on a problem. What is written around the variant is written around the baseline too, which
    says what that costs a program that keeps nothing."""

    variant: PlainArm
    variant_audit: AuditArm
    baseline: Arm
    baseline_audit: AuditArm
    row: Callable[[], float] | None = None
    """Seconds of the variant's forwards right after one another, each on inputs that no call has seen."""


class Track(Protocol):
    """One problem on one device in this process, with its inputs, ready for races."""

    problem: Problem
    gap: float
    """Seconds by which what runs between two forwards may cost one implementation more than another."""
    settles_s: float
    """Seconds of samples, by all arms in turn, after which the device keeps its clocks."""

    def another(self) -> Self | None:
        """The same with its inputs at other addresses; None where one load of all arms says as much as several, or
        there is no room."""

    def baseline(self, name: str) -> Arm:
        """The arm of a baseline. Raises RuntimeError when it does not take the problem, and InfrastructureError when
        the device has no memory left for it."""

    def variant(self, artifact: Artifact, again: bool = False) -> VariantArm:
        """The arm of a variant, with outputs of its own. `again`: from a second load of its library.

        Raises ArmError when it cannot be launched.
        """

    def audit(self, artifact: Artifact, baseline: str) -> Audited:
        """The arms of an audit. Raises ArmError when the variant cannot be launched."""

    def throttled(self) -> str | None:
        """Why what was just timed does not count: the device's clocks are held down. None when they are not."""

    def shared(self) -> str | None:
        """Why what was just timed is longer than it would be: another program has the device in turns. None when none
        has, or where every sample says how long it waited."""


Tracks = Sequence[Track]
"""One for each problem of a study, in its order."""
