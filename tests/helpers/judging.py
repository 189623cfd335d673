"""A variant's whole way through an executor, as the driver would send it."""

from __future__ import annotations

from typing import Literal

from autotuner.run.executor import Executor
from autotuner.run.jobs import BuildJob, Built, JudgeJob
from autotuner.tuning.outcomes import RETRIES
from autotuner.values.conditions import Conditions
from autotuner.values.outcome import Outcome
from autotuner.values.variant import Variant
from autotuner.values.verdict import Verdict


def judged(
    executor: Executor, variant: Variant, conditions: Conditions, soak: Literal["never", "promoted"] = "promoted"
) -> Outcome:
    """The variant's outcome. Nothing else may be in the executor. As the driver does, it tries again what a disturbed
    machine or a lost process ended."""
    for _ in range(RETRIES + 1):
        outcome = _once(executor, variant, conditions, soak)
        if outcome.verdict != Verdict.INFRA_ERROR:
            break
    return outcome


def _once(executor: Executor, variant: Variant, conditions: Conditions, soak: Literal["never", "promoted"]) -> Outcome:
    executor.submit(BuildJob(variant=variant, conditions=conditions))
    done = executor.wait(300)
    assert done is not None
    if isinstance(done[1], Built):
        executor.submit(JudgeJob(built=done[1], conditions=conditions, soak=soak))
        done = executor.wait(120)
        assert done is not None
    assert isinstance(done[1], Outcome)
    return done[1]
