"""Finals on a machine that something disturbs, as far as the jobs say."""

from __future__ import annotations

from collections.abc import Callable

from autotuner.run.jobs import AnyJob, RaceJob, Result
from autotuner.values.verdict import Fault, Verdict
from tests.helpers.fake_line import FakeLine
from tests.helpers.inline_executor import InlineExecutor


class Spoilt(InlineExecutor):
    """Says of some races that the baseline was off: `spoils` decides by the job."""

    def __init__(self, line: FakeLine, spoils: Callable[[RaceJob], bool]) -> None:
        super().__init__(line)
        self._spoils = spoils
        self._races: dict[int, RaceJob] = {}

    def submit(self, job: AnyJob, lane: int = 0) -> int:
        number = super().submit(job, lane)
        if isinstance(job, RaceJob) and job.conditions.baseline_us:  # else nothing is compared
            self._races[number] = job
        return number

    def wait(self, timeout: float | None = None) -> tuple[int, Result] | None:
        done = super().wait(timeout)
        if done is not None and done[0] in self._races and self._spoils(self._races[done[0]]):
            return done[0], Fault(verdict=Verdict.DISTURBED, code="measure.drift", detail="SDPA is slow")
        return done
