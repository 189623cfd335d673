"""Where variants are built, checked and measured: the seam between the line and a kind of device.

cpu.py is the real thing on a machine without a GPU; fake.py answers from a table, for tests and replay.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol

from autotuner.measure.arms import Tracks
from autotuner.values.gate_report import GateReport
from autotuner.values.outcome import Artifact, Calibration, Say
from autotuner.values.terms import Terms
from autotuner.values.variant import Variant
from autotuner.values.verdict import Fault

Level = Literal["soak", "finalist", "sanitize"]
"""Levels of the gate after the first five: G6, G6 with as many launches as a finalist gets, G8."""


class Passed(NamedTuple):
    """A report without a fault, and the level to append to it."""

    report: GateReport
    level: Level


class Backend(Protocol):
    """Four stages. A variant's fault is a returned value; exceptions are ours."""

    def calibrate(self, terms: Terms, say: Say) -> Calibration:
        """Measures every SDPA backend on the problems and against the reference, and what the device can do at most;
        names the fastest backend of each problem."""

    def build(self, variant: Variant, terms: Terms) -> Artifact | Fault:
        """The variant's artifact, or why there is none."""

    def check(self, artifact: Artifact, terms: Terms, say: Say, passed: Passed | None = None) -> GateReport:
        """The gate, G0 to G5; or, after a pass of that, one more level, appended to its report."""

    def tracks(self, terms: Terms) -> Tracks:
        """The problems, ready for races in this process. measure/race.py runs them."""
