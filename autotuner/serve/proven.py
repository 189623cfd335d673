"""What a table says of a variant: its confirmed ratio, and what the gate found."""

from __future__ import annotations

import math

from autotuner.race.confirm import Confirmed
from autotuner.tuning.gate_summary import GateSummary
from autotuner.values.gate_report import GateReport
from autotuner.values.table import Proven, Ratio


def ratio_of(found: Confirmed) -> Ratio:
    """t_baseline / t_variant, without its infinite ends."""
    return Ratio(**dict(found.log_ratio.speedup), processes=found.processes)


def proven_of(gate: GateReport) -> Proven:
    """A gate report in figures."""
    summary = GateSummary.of(gate)
    return Proven(
        passed=summary.passed,
        unavailable=summary.unavailable,
        cases=summary.cases,
        worst_ratio=summary.worst_ratio if math.isfinite(summary.worst_ratio or 0.0) else None,
        looser=summary.looser,
        could_miss=summary.could_miss,
        memory=summary.memory,
    )
