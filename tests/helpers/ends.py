"""How jobs end."""

from autotuner.run.executor import Executor
from autotuner.run.jobs import AnyJob, Result
from autotuner.values.outcome import Outcome


def outcome(done: tuple[int, Result] | None) -> Outcome:
    assert done is not None
    assert isinstance(done[1], Outcome)
    return done[1]


def next_of(executor: Executor) -> tuple[int, Result]:
    """The job that ends next."""
    done = executor.wait(60)
    assert done is not None
    return done


def comes_of(executor: Executor, job: AnyJob, lane: int = 0) -> Outcome:
    """What comes of a job where nothing else is in the executor."""
    executor.submit(job, lane)
    return outcome(executor.wait(60))
