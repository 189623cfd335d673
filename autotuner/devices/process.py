"""What a process has of its device: the seam between the line (run/) and a kind of device."""

from typing import Protocol

from autotuner.forge.family import Family
from autotuner.forge.loaded_variant import LoadedVariant
from autotuner.gate.bench import Bench
from autotuner.gate.cases import Case, Matrix
from autotuner.gate.recheck import JudgesOf
from autotuner.gate.sanitizer import SanitizerTool
from autotuner.gate.tolerance import Truth
from autotuner.race.arms import Track
from autotuner.values.conditions import Conditions
from autotuner.values.outcome import Ceilings, Say
from autotuner.values.problem import Problem


class DeviceProcess(Protocol):
    """The device in this process, which may die with a variant."""

    torch_device: str
    """What torch calls such devices."""
    streams: bool
    """Whether the device has streams: G4 is required."""
    calibration_rounds: int
    """Samples of each baseline from which the fastest is chosen."""

    def prepare(self, conditions: Conditions) -> None:
        """Before anything is run: CPUs and threads."""

    def truth(self, case: Case, seed: int) -> Truth:
        """The case's inputs, on the device, and what its outputs must be; computed or remembered."""

    def bench(self, variant: LoadedVariant, matrix: Matrix) -> Bench:
        """Where the gate runs the variant."""

    def track(self, conditions: Conditions, problem: Problem, judges: JudgesOf) -> Track:
        """A problem, ready for races. `judges`: what the track asks about the variants it has timed."""

    def ceilings(self, conditions: Conditions) -> Ceilings:
        """What the device can do at most, measured."""

    def draw(self, conditions: Conditions, say: Say) -> None:
        """Makes ready, before the first variant, what would take long while one is judged."""

    def sanitizer(self, family: Family) -> SanitizerTool:
        """The tools of G8."""

    def settle(self) -> bool:
        """Whether the device is idle after a launch that failed. One that does not come to rest ends the process."""
