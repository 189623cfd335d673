"""A variant's whole way through an executor, as the driver would send it."""

from typing import Literal

from autotuner.gate.sanitizer import DEADLINE_S
from autotuner.run.executor import Executor
from autotuner.run.jobs import BuildJob, Built, JudgeJob
from autotuner.tuning.run.outcomes import RETRIES
from autotuner.values.conditions import Conditions
from autotuner.values.outcome import Outcome
from autotuner.values.variant import Variant
from autotuner.values.verdict import Verdict

Soak = Literal["never", "promoted", "chosen"]


def judged(
    executor: Executor, variant: Variant, conditions: Conditions, soak: Soak = "promoted", many_s: float = 10
) -> Outcome:
    """The variant's outcome. Nothing else may be in the executor. As the driver does, it tries again what a disturbed
    machine or a lost process ended. `many_s`: seconds of launches of one that is chosen."""
    for _ in range(RETRIES + 1):
        outcome = _once(executor, variant, conditions, soak, many_s)
        if outcome.verdict != Verdict.INFRA_ERROR:
            break
    return outcome


def _once(executor: Executor, variant: Variant, conditions: Conditions, soak: Soak, many_s: float) -> Outcome:
    executor.submit(BuildJob(variant=variant, conditions=conditions))
    done = executor.wait(300)
    assert done is not None
    if isinstance(done[1], Built):
        chosen = soak == "chosen"
        job = JudgeJob(built=done[1], conditions=conditions, soak=soak, many_s=many_s, fresh=chosen)
        executor.submit(job)
        done = executor.wait(120 + many_s + (DEADLINE_S if chosen else 0))
        assert done is not None
    assert isinstance(done[1], Outcome)
    return done[1]
