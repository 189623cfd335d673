"""What races against what: the incumbents of the judging jobs."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from autotuner.run.jobs import AnyJob, JudgeJob
from autotuner.store import Store
from autotuner.tuning.run.driver import Budget, Driver
from autotuner.tuning.run.plan import Plan
from tests.helpers import simulated
from tests.helpers.driven import SPACE, WIDE, Shuffled
from tests.helpers.fake_line import FakeLine


def test_all_but_the_first_race_against_an_incumbent(tmp_path: Path) -> None:
    """Whatever is measured without one is promoted, and audited and soaked before: that takes longer than the race."""
    jobs: list[JudgeJob] = []

    class Notes(Shuffled):
        def submit(self, job: AnyJob, lane: int = 0) -> int:
            if isinstance(job, JudgeJob):
                jobs.append(job)
            return super().submit(job, lane)

    executor = Notes(FakeLine(simulated.truth), WIDE)
    with closing(Store.open(str(tmp_path / "studies.db"))) as store:
        Driver(store, executor, Plan(SPACE, simulated.DEVICE, simulated.conditions())).run(Budget(trials=12))
    first, *others = jobs
    assert first.incumbent is None
    assert len(others) >= 8  # some are rejected before, or equal
    assert all(job.incumbent is not None for job in others)
