"""A gate report in a few figures, for those who use a variant."""

from __future__ import annotations

import statistics

from pydantic import ConfigDict, Field

from autotuner.values.gate_report import GateReport
from autotuner.values.model import Model


class GateSummary(Model):
    """A gate report in figures. As JSON, a ratio that is not finite is null."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="null")

    passed: tuple[str, ...] = Field(description="codes of the checks that passed, in order")
    unavailable: tuple[str, ...] = Field(description="codes of the checks that could not run here; absence is no pass")
    cases: int = Field(description="outputs compared with the float64 reference")
    worst_ratio: float | None = Field(description="largest error over all cases, in units of its tolerance")
    peer_ratio: float | None = Field(
        default=None, description="median over the cases of the largest error, over that of the op's peer"
    )
    looser: tuple[str, ...] = Field(default=(), description="where kernel.toml loosens the gate, with the reason")

    @classmethod
    def of(cls, report: GateReport) -> GateSummary:
        """The figures of a report."""
        errors = [each.errors for check in report.checks for each in check.cases]
        ratios = [each.worst_ratio for each in errors]
        beside_peer = [each.peer_ratio for each in errors if each.peer_ratio is not None]
        return cls(
            passed=tuple(check.code for check in report.checks if check.status == "pass"),
            unavailable=tuple(check.code for check in report.checks if check.status == "unavailable"),
            cases=len(ratios),
            worst_ratio=max(ratios, default=None),
            peer_ratio=statistics.median(beside_peer) if beside_peer else None,
            looser=report.policy.looser,
        )
