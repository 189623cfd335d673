"""The report on one judged variant: one JSON a trial, for programs. Its schema is docs/trial-report.schema.json."""

import statistics
from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import ConfigDict, Field

from autotuner.values import codes
from autotuner.values.gate_report import CheckResult, GatePolicy, GateReport, ReferenceCheck, ReportedIdentity
from autotuner.values.model import Model
from autotuner.values.outcome import Artifact, Calibration, Device, Measurement, Outcome
from autotuner.values.problem import Problem
from autotuner.values.table import Proven
from autotuner.values.variant import Value, Variant
from autotuner.values.verdict import Fault, Verdict


class IdentityReport(Model):
    """Which binary was judged: what was asked for, and what it said of itself."""

    build_id: str = Field(description="digest of all that went into it; the library must report it")
    extension_name: str
    library_sha256: str
    program_hash: str = Field(description="machine code, launch geometry and host-side parameters")
    deduplicated_of: str | None = Field(description="build id of the artifact that was measured in its place")
    macros: dict[str, str]
    reported: ReportedIdentity | None = Field(description="null when it was never loaded")
    compiler: str
    flags: tuple[str, ...]
    architecture: str

    @classmethod
    def of(cls, artifact: Artifact, outcome: Outcome) -> Self:
        """What is known of the artifact and its loaded library."""
        reported = outcome.gate.identity if outcome.gate else None
        own = {"build_id": artifact.digest, "extension_name": artifact.name, "deduplicated_of": outcome.original}
        return cls.taken_from(artifact, **own, reported=reported)


class EnvironmentReport(Model):
    """Where it was judged."""

    backend: str
    device: str
    facts: dict[str, Value | bool]
    versions: dict[str, str]


class TrialReport(Model):
    """All that the gate found of one variant. The command line writes a number that is not finite as null."""

    schema_version: Literal[3] = 3
    verdict: Verdict
    fault: Fault | None = Field(description="the first failure; null after a pass")
    variant: Variant
    problems: tuple[Problem, ...] = Field(description="what the variant is tuned for")
    policy: GatePolicy = Field(description="what the family's kernel.toml changes of the gate")
    looser: tuple[str, ...] = Field(description="where the gate looked away, with the written reason")
    checks: tuple[CheckResult, ...] = Field(description="in the order in which they ran; the first failure ended it")
    identity: IdentityReport | None = Field(description="null when nothing was built")
    resources: dict[str, int]
    measurement: Measurement | None = Field(description="its race, of few blocks in `autotuner gate`; null without one")
    references: tuple[ReferenceCheck, ...] = Field(description="torch's own backends, judged by the same rules")
    environment: EnvironmentReport
    seconds: dict[str, float]
    stderr_tail: str


def trial_report(
    outcome: Outcome, problems: tuple[Problem, ...], device: Device, calibration: Calibration
) -> TrialReport:
    """The report on an outcome; `device` and `calibration` are those of the session that judged it."""
    gate, artifact = outcome.gate, outcome.artifact
    policy = gate.policy if gate else GatePolicy()
    return TrialReport.taken_from(
        outcome,
        problems=problems,
        policy=policy,
        looser=policy.looser,
        checks=gate.checks if gate else (),
        identity=IdentityReport.of(artifact, outcome) if artifact else None,
        resources=artifact.resources if artifact else {},
        measurement=outcome.measurement if outcome.verdict.has_latency else None,
        references=calibration.references,
        environment=EnvironmentReport.taken_from(
            device, device=device.name, versions={**device.environment, **calibration.versions}
        ),
    )


NOT_CHOSEN = "not run: it is run on the variant to use, after the finals"
RULE_OF_THREE = 3.0
"""In n launches an error of the rate 3 / n shows with probability 1 - exp(-3), 95 %."""


class GateSummary(Proven):
    """A gate report in figures. As JSON, a ratio that is not finite is null."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="null")

    peer_ratio: float | None = Field(
        default=None, description="median over the cases of the largest error, over that of the op's peer"
    )
    many_launches: int = Field(
        default=0, description="launches on the tuned problems, as many as fit in some seconds, that gave equal bits"
    )
    many_seconds: float = Field(default=0.0, description="seconds that they took")
    memory: str = Field(default=NOT_CHOSEN, description="whether a memory sanitizer was run, or why not")

    @classmethod
    def of(cls, report: GateReport) -> Self:
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
