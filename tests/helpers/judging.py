"""A variant's whole way through an executor, as the driver would send it."""

from typing import Literal

from autotuner.gate.sanitizer import DEADLINE_S
from autotuner.run.executor import Executor
from autotuner.run.jobs import AnyJob, BuildJob, Built, JudgeJob, Result
from autotuner.tuning.run.outcomes import RETRIES
from autotuner.values.conditions import Conditions
from autotuner.values.outcome import Outcome
from autotuner.values.problem import Problem
from autotuner.values.variant import Variant
from autotuner.values.verdict import Verdict

Soak = Literal["never", "promoted", "chosen"]


def briefly(problem: Problem, seeds: tuple[int, ...] = (11, 22, 33, 44)) -> Conditions:
    """Conditions under which a race on the problem is as short as it may be."""
    return Conditions(problems=(problem,), cache="warm", seeds=seeds, baselines=("flash",), min_blocks=2, max_blocks=2)


def result(executor: Executor, job: AnyJob, seconds: float = 300) -> Result:
    """What comes of a job where nothing else is in the executor."""
    executor.submit(job)
    done = executor.wait(seconds)
    assert done is not None
    return done[1]


def judged(
    executor: Executor, variant: Variant, conditions: Conditions, soak: Soak = "promoted", many_s: float = 10
) -> Outcome:
    """The variant's outcome. Nothing else may be in the executor. As the driver does, it tries again what a disturbed
    machine or a lost process ended. `many_s`: seconds of launches of one that is chosen."""
    for _ in range(RETRIES + 1):
        outcome = _once(executor, variant, conditions, soak, many_s)
        if outcome.verdict not in (Verdict.DISTURBED, Verdict.INFRA_ERROR):
            break
    return outcome


def _once(executor: Executor, variant: Variant, conditions: Conditions, soak: Soak, many_s: float) -> Outcome:
    found = result(executor, BuildJob(variant=variant, conditions=conditions))
    if isinstance(found, Built):
        chosen = soak == "chosen"
        job = JudgeJob(built=found, conditions=conditions, soak=soak, many_s=many_s, fresh=chosen)
        found = result(executor, job, 120 + many_s + (DEADLINE_S if chosen else 0))
    assert isinstance(found, Outcome)
    return found
