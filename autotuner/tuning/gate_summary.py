"""A gate report in a few figures, for those who use a variant."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from pydantic import ConfigDict, Field

from autotuner.values import codes
from autotuner.values.gate_report import CheckResult, GateReport
from autotuner.values.model import Model

NOT_CHOSEN = "not run: it is run on the variant to use, after the finals"
RULE_OF_THREE = 3.0
"""In n launches an error of the rate 3 / n shows with probability 1 - exp(-3), 95 %."""


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
    many_launches: int = Field(
        default=0, description="launches on the tuned problems, as many as fit in some seconds, that gave equal bits"
    )
    many_seconds: float = Field(default=0.0, description="seconds that they took")
    could_miss: float | None = Field(
        default=None,
        description="the least rate of wrong launches that they show with probability 95 %; null: there were none",
    )
    memory: str = Field(default=NOT_CHOSEN, description="whether a memory sanitizer was run, or why not")

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
            **_proven({check.code: check for check in report.checks}),
        )


def _proven(checks: Mapping[str, CheckResult]) -> dict[str, Any]:
    """What only the variant to use has been through."""
    many, memory = checks.get(codes.MANY), checks.get(codes.MEMORY)
    found: dict[str, Any] = {}
    if many is not None and many.status == "pass" and many.launches:
        found |= {"many_launches": many.launches, "many_seconds": many.seconds}
        found["could_miss"] = RULE_OF_THREE / many.launches
    if memory is not None:
        found["memory"] = {"pass": "passed", "fail": "failed"}.get(memory.status, f"not run: {memory.note}")
    return found
