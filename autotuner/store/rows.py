"""Between rows of the tables and the values that cross the store's border."""

import json
import math
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter

from autotuner.store.records import REVOKED, StudyRecord
from autotuner.store.tables import StudyRow, TrialRow
from autotuner.values.errors import StoreError
from autotuner.values.outcome import Outcome, Timing
from autotuner.values.problem import Problem
from autotuner.values.variant import Variant
from autotuner.values.verdict import Fault, Verdict

STAGES = {"build": "build_s", "measure": "measure_s", "audit": "measure_s"}
"""Under which column the seconds of a stage count; those of every other one are the gate's."""

_PROBLEMS = TypeAdapter(tuple[Problem, ...])


def check(outcome: Outcome) -> None:
    """Raises ValueError where an outcome breaks the rule that only what passed the gate has a latency."""
    measurement, verdict = outcome.measurement, outcome.verdict
    if not verdict.has_latency:
        if measurement is not None and verdict != Verdict.DISTURBED:
            raise ValueError(f"an outcome {verdict} carries a latency")
        return
    if measurement is None or not measurement.timings or not math.isfinite(measurement.objective):
        raise ValueError(f"an outcome {verdict} has no finite latency")
    if any(not _complete(timing) for timing in measurement.timings):
        raise ValueError(f"an outcome {verdict} has a latency without its blocks")
    if verdict != Verdict.DEDUPLICATED and (outcome.gate is None or not outcome.gate.passed):
        raise ValueError(f"an outcome {verdict} has not passed the gate")
    if verdict == Verdict.DEDUPLICATED and outcome.original is None:
        raise ValueError("a deduplicated outcome names no original")


def _complete(timing: Timing) -> bool:
    times = timing.variant_us + timing.baseline_us + timing.incumbent_us
    count = len(timing.variant_us)
    whole = 0 < count == len(timing.baseline_us) and len(timing.incumbent_us) in (0, count)
    return whole and all(0 < t < math.inf for t in times)


def study_row(study: StudyRecord, now: datetime) -> StudyRow:
    """A new row."""
    problems = _PROBLEMS.dump_json(study.problems).decode()
    return StudyRow(**dict(study) | {"problems": problems, "created_at": study.created_at or now})


def study_record(row: StudyRow) -> StudyRecord:
    """The study that a row stands for. Raises StoreError where the op of its problems is not here."""
    return StudyRecord.taken_from(row, problems=problems_of(row))


def problems_of(row: StudyRow) -> tuple[Problem, ...]:
    """The study's problems. Raises StoreError where their op is not here, as that of a package that was removed."""
    missing = missing_op(row)
    if missing is not None:
        raise StoreError(f"study {row.name} is of the op {missing!r}, which is not here; install its package")
    return _PROBLEMS.validate_json(row.problems)


def missing_op(row: StudyRow) -> str | None:
    """The op of the study's problems where it is not here. Raises ValueError where they are no tables."""
    for op in {str(dict(each).get("op")) for each in json.loads(row.problems)}:
        try:
            Problem.find(op)
        except KeyError:
            return op
    return None


def trial_values(study_id: int, session_id: int, number: int, outcome: Outcome, now: datetime) -> dict[str, Any]:
    """The columns of a new TrialRow but its key. The outcome has passed `check`."""
    artifact, fault, measurement = outcome.artifact, outcome.fault, outcome.measurement
    spent = {"build_s": 0.0, "measure_s": 0.0, "check_s": 0.0}
    for stage, seconds in outcome.seconds.items():
        spent[STAGES.get(stage, "check_s")] += seconds
    values = {
        "study_id": study_id,
        "session_id": session_id,
        "number": number,
        "judged": outcome.verdict.judges,
        "variant_digest": outcome.variant.digest,
        "artifact_digest": artifact.digest if artifact else None,
        "program_hash": (artifact.program_hash or None) if artifact else None,
        "extension_name": artifact.name if artifact else None,
        "original": outcome.original,
        "verdict": outcome.verdict.value,
        "objective": measurement.objective if measurement and outcome.verdict.has_latency else None,
        "censored": measurement is not None and (measurement.censored or outcome.verdict == Verdict.RACED_OUT),
        "fault_code": fault.code if fault else None,
        "fault_case": fault.case if fault else None,
        "fault_detail": fault.detail if fault else None,
        "outcome": outcome,
        "seconds": math.fsum(outcome.seconds.values()),
        **spent,
        "build_began": outcome.build_began,
        "recorded_at": now,
    }
    if measurement is None:
        return values
    ends = {"log_low": measurement.log_ratio.low, "log_high": measurement.log_ratio.high}
    return {**values, **ends, "median_us": measurement.variant_us, "baseline_us": measurement.baseline_us}


def blocks(trial_id: int, outcome: Outcome) -> Iterator[dict[str, float | None]]:
    """The raw blocks of a trial's own measurement; a deduplicated trial has none, its original's are the only ones."""
    if outcome.measurement is None or outcome.verdict == Verdict.DEDUPLICATED:
        return
    for problem, timing in enumerate(outcome.measurement.timings):
        incumbent_us = timing.incumbent_us or (None,) * len(timing.variant_us)
        times = zip(timing.variant_us, timing.baseline_us, incumbent_us, strict=True)
        for block, (variant, baseline, incumbent) in enumerate(times):
            yield {
                "trial_id": trial_id,
                "problem": problem,
                "block": block,
                "variant_us": variant,
                "baseline_us": baseline,
                "incumbent_us": incumbent,
            }


def parameters(trial_id: int, variant: Variant) -> Iterator[dict[str, Any]]:
    """The rows of a trial's parameters, IMPL among them."""
    for name, value in variant.point.items():
        word, number = (value, None) if isinstance(value, str) else (None, int(value))
        yield {"trial_id": trial_id, "name": name, "number": number, "word": word}


def standing_outcome(row: TrialRow) -> Outcome:
    """The outcome as it stands: a revoked trial is `incorrect` and has no latency."""
    if row.revoked_at is None:
        return row.outcome
    fault = Fault(verdict=Verdict.INCORRECT, code=REVOKED, detail=row.revoked_reason or "")
    return row.outcome.model_copy(update={"verdict": Verdict.INCORRECT, "fault": fault, "measurement": None})
