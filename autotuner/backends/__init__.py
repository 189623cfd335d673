"""Where variants are built, checked and measured: the seam between the line and a kind of device.

cpu.py is the real thing on a machine without a GPU; fake.py answers from a table, for tests and replay.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol

from autotuner.outcome import Artifact, Calibration, Measurement, Say
from autotuner.report import GateReport
from autotuner.terms import Terms
from autotuner.variant import Variant
from autotuner.verdict import Fault


class Passed(NamedTuple):
    """A report without a fault, and the level to append to it."""

    report: GateReport
    level: Literal["soak", "sanitize"]


class Backend(Protocol):
    """Four stages. A variant's fault is a returned value; exceptions are ours."""

    def calibrate(self, terms: Terms, say: Say) -> Calibration:
        """Measures every SDPA backend on the problems and against the reference; names the fastest of each problem."""

    def build(self, variant: Variant, terms: Terms) -> Artifact | Fault:
        """The variant's artifact, or why there is none."""

    def check(self, artifact: Artifact, terms: Terms, say: Say, passed: Passed | None = None) -> GateReport:
        """The gate, G0 to G5; or, after a pass of that, one more level, appended to its report."""

    def measure(
        self, artifact: Artifact, terms: Terms, say: Say, best: float | None = None, rival: Artifact | None = None
    ) -> Measurement | Fault:
        """Interleaved blocks against the pinned baseline, or against `rival` (another artifact, or the same again).

        `best` is the objective to beat: a candidate that is clearly slower is stopped early. A Fault when the outputs
        after timing are not those of a right variant (G7).
        """
