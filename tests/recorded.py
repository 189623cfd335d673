"""Outcomes of every kind, made up, for tests of the store and of what reads it."""

from __future__ import annotations

import math

from autotuner.outcome import Artifact, Calibration, Device, Interval, Measurement, Outcome, Timing
from autotuner.problem import Problem
from autotuner.report import REQUIRED_CHECKS, CheckResult, GateReport
from autotuner.store import Store, StudyRecord
from autotuner.variant import Variant, digest_of
from autotuner.verdict import Fault, Verdict

PROBLEM = Problem(batch=1, heads=8, seq_q=512, seq_k=512, head_dim=64, dtype="float32")
CALIBRATION = Calibration(baselines=("flash",), timings=(), references=())


def variant(tile: int) -> Variant:
    return Variant(family="sdpa", backend="cpu", impl="scalar", parameters={"BLOCK_M": tile})


def artifact(tile: int, program: str | None = None) -> Artifact:
    digest = digest_of(["artifact", tile])
    return Artifact(
        variant=variant(tile),
        dtype="float32",
        head_dim=64,
        causal=False,
        digest=digest,
        name=f"sdpa_scalar_{digest[:12]}",
        path=f"/nowhere/{tile}.so",
        library_sha256=digest_of(["library", tile]),
        program_hash=program or digest_of(["program", tile]),
        macros={},
        compiler="g++ 13",
        flags=("-O3",),
        architecture="x86-64-v4",
        resources={},
        build_seconds=1.0,
    )


def passed_gate(tile: int) -> GateReport:
    checks = tuple(CheckResult(code=code, status="pass", seconds=0.1) for code in REQUIRED_CHECKS)
    return GateReport(artifact=artifact(tile).digest, checks=checks)


def measurement(microseconds: float, baseline: float = 100.0, *, censored: bool = False) -> Measurement:
    log = math.log(microseconds / baseline)
    timing = Timing(
        problem=PROBLEM,
        baseline="flash",
        variant_us=(microseconds * 0.99, microseconds, microseconds * 1.01),
        baseline_us=(baseline * 1.01, baseline, baseline * 0.99),
        log_ratio=Interval(low=log - 0.02, median=log, high=log + 0.02),
        calls=(10, 10),
    )
    return Measurement(timings=(timing,), objective=log, cache="cold", censored=censored)


def measured(tile: int, microseconds: float, program: str | None = None) -> Outcome:
    return Outcome(
        variant=variant(tile),
        verdict=Verdict.MEASURED,
        artifact=artifact(tile, program),
        gate=passed_gate(tile),
        measurement=measurement(microseconds),
        seconds={"build": 1.5, "check": 2.0, "measure": 0.5},
    )


def raced_out(tile: int, microseconds: float) -> Outcome:
    changes = {"verdict": Verdict.RACED_OUT, "measurement": measurement(microseconds, censored=True)}
    return measured(tile, microseconds).model_copy(update=changes)


def deduplicated(tile: int, original: Outcome) -> Outcome:
    assert original.artifact is not None
    return Outcome(
        variant=variant(tile),
        verdict=Verdict.DEDUPLICATED,
        artifact=artifact(tile, original.artifact.program_hash),
        measurement=original.measurement,
        original=original.artifact.digest,
    )


def rejected(tile: int, verdict: Verdict = Verdict.INCORRECT, code: str = "G2.T1") -> Outcome:
    fault = Fault(verdict=verdict, code=code, detail="max error 0.5", case="Q3 2x3x509x509 randn")
    return Outcome(variant=variant(tile), verdict=verdict, artifact=artifact(tile), fault=fault)


def study_record(name: str = "scalar-abc", space_digest: str = "d" * 64) -> StudyRecord:
    return StudyRecord(
        name=name,
        space_name="scalar",
        space_digest=space_digest,
        space_document='{"name": "scalar"}',
        problems=(PROBLEM,),
        device=Device(backend="cpu", name="A CPU", facts={"CORES": 2, "AVX512": True}, environment={"torch": "2.11"}),
        cache="cold",
        sampler="evolution",
        seed=2**40,
    )


def record_all(store: Store, session: int, outcomes: list[Outcome]) -> None:
    for number, outcome in enumerate(outcomes):
        store.record("scalar-abc", session, number, outcome)
