"""Where jobs run: the seam between the driver and the processes, or the machines, that do the work; and how an executor
is asked for answers."""

import math
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from autotuner.run.jobs import AnyJob, Result
from autotuner.values.errors import InfrastructureError, OracleError, OutOfTimeError
from autotuner.values.outcome import Calibration

BEAT_S = 10.0
"""Seconds between two renewals of a lease; while an answer is waited for, at most."""

Beat = Callable[[], None]
"""Called again and again while an answer is waited for."""


class Executor(Protocol):
    """Runs jobs so that no variant can harm the driver: submit, wait, close.

    Builds may run beside each other and beside jobs on the devices; on each device there is one job at a time.
    """

    @property
    def width(self) -> int:
        """How many variants in flight, from proposal to outcome, keep it busy."""

    @property
    def lanes(self) -> int:
        """On how many devices jobs run, side by side."""

    @property
    def builders(self) -> int:
        """How many variants are built side by side at most."""

    def submit(self, job: AnyJob, lane: int = 0) -> int:
        """Queues the job for the device of that lane, 0 <= lane < lanes; a BuildJob needs none. The number that it
        returns is the handle by which `wait` reports the job.

        A job whose attribute `fresh` is True has a process, or else a backend, that does no other job.
        """

    def wait(self, timeout: float | None = None) -> tuple[int, Result] | None:
        """The next finished job, or None after `timeout` seconds and when there is nothing to wait for.

        Raises InputError and OracleError as the job raised them, and InfrastructureError when its process was lost for
        reasons that are not a variant's, or when the device does not work any more.
        """

    def close(self) -> None:
        """Ends every process, finished or not."""


class Heartbeat:
    """Renews a lease, but not more often than every BEAT_S seconds: answers and proposals may come much faster. And
    says when the time is over."""

    def __init__(self, renew: Callable[[], None], until: Callable[[], float] = lambda: math.inf) -> None:
        """`renew`: what renews the lease, which is fresh now. `until`: when the time is over, on the monotonic clock,
        by what is known whenever it is asked."""
        self._renew, self._last, self._until = renew, time.monotonic(), until

    @property
    def next_s(self) -> float:
        """Seconds after which it has to be called again."""
        return min(BEAT_S, max(0.0, self._until() - time.monotonic()))

    def __call__(self) -> None:
        """Raises OutOfTimeError."""
        if time.monotonic() >= self._until():
            raise OutOfTimeError("the time is over before there is a result: it needs more --minutes")
        self.renew()

    def renew(self) -> None:
        """The same while an answer is in hand, for which there is time."""
        if time.monotonic() - self._last >= BEAT_S:
            self._renew()
            self._last = time.monotonic()


def next_answer(executor: Executor, beat: Beat | None = None) -> tuple[int, Result]:
    """The number and the result of the next job that ends. Raises what the executor's `wait` and `beat` do, and
    InfrastructureError when no job is under way."""
    while (done := executor.wait(_longest_s(beat))) is None:
        if beat is None:
            raise InfrastructureError("no job is under way, so none can be waited for")
        beat()
    if isinstance(beat, Heartbeat):
        beat.renew()
    elif beat is not None:
        beat()
    return done


def _longest_s(beat: Beat | None) -> float | None:
    """Seconds that an answer is waited for until the next beat."""
    if beat is None:
        return None
    return beat.next_s if isinstance(beat, Heartbeat) else BEAT_S


def ask(executor: Executor, job: AnyJob, beat: Beat | None = None) -> Result:
    """The result of one job on the first device, where nobody waits for another. Raises as `next_answer` does."""
    return ask_all(executor, [(job, 0)], beat)[0]


def ask_all(executor: Executor, jobs: Sequence[tuple[AnyJob, int]], beat: Beat | None = None) -> list[Result]:
    """The results of jobs, each on the device of its lane, side by side; what was given up before may come first."""
    numbers = [executor.submit(job, lane) for job, lane in jobs]
    answers = dict[int, Result]()
    while not answers.keys() >= set(numbers):
        answers.update([next_answer(executor, beat)])
    return [answers[number] for number in numbers]


def calibration(result: Result) -> Calibration:
    """The answer to a CalibrationJob. Raises InfrastructureError when the result is another."""
    if not isinstance(result, Calibration):
        raise InfrastructureError(f"calibration gave no result: {result}")
    return result


def sound_calibration(result: Result) -> Calibration:
    """The same where each case has a baseline that is right. Raises OracleError where one has none."""
    found = calibration(result)
    if found.oracle_fault is not None:
        raise OracleError(found.oracle_fault)
    return found
