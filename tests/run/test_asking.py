"""Asking an executor: answers in the order of the jobs, and a heartbeat while they are waited for."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from autotuner.run import executor as executors
from autotuner.run.jobs import AnyJob, BuildJob, Built, Result
from autotuner.values.variant import Variant
from tests.helpers import simulated
from tests.helpers.inline_executor import InlineExecutor

SPACE = simulated.space()


def build(point: int) -> BuildJob:
    return BuildJob(variant=Variant.of("sdpa", "cpu", SPACE.point(point)), conditions=simulated.conditions())


class Backwards(InlineExecutor):
    """Ends the last job first, and lets a wait or two pass before it."""

    def __init__(self) -> None:
        super().__init__(simulated.backend(), width=4, lanes=2)
        self.lanes_asked: list[int] = []
        self._idle = 2

    def submit(self, job: AnyJob, lane: int = 0) -> int:
        self.lanes_asked.append(lane)
        return super().submit(job, lane)

    def wait(self, timeout: float | None = None) -> tuple[int, Result] | None:
        if timeout is not None and self._idle:
            self._idle -= 1
            return None
        self._waiting.rotate(1)
        return super().wait(timeout)


def test_the_answers_are_in_the_order_of_the_jobs() -> None:
    executor, beats = Backwards(), [0]

    def beat() -> None:
        beats[0] += 1

    answers = executors.ask_all(executor, [(build(5), 0), (build(7), 1)], beat)
    built = [answer.artifact.variant.point for answer in answers if isinstance(answer, Built)]
    assert built == [SPACE.point(5), SPACE.point(7)]
    assert executor.lanes_asked == [0, 1]
    assert beats[0] == 4  # at two waits without an answer and at two with one


def test_a_lease_is_renewed_no_more_often_than_it_must_be(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    renewed: list[float] = []
    monkeypatch.setattr(executors, "time", SimpleNamespace(monotonic=lambda: now[0]))
    heartbeat = executors.Heartbeat(lambda: renewed.append(now[0]))
    for second in range(35):
        now[0] = float(second)
        heartbeat()
    assert renewed == [10.0, 20.0, 30.0]
