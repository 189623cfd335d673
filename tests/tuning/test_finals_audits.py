"""Every finalist is audited in each of its processes."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from autotuner.gate.recheck import AUDIT
from autotuner.run.jobs import AnyJob, RaceJob
from autotuner.store import Store, queries
from autotuner.tuning.finals import standings
from autotuner.values.variant import Variant
from tests.helpers import simulated
from tests.helpers.fake_line import FakeLine, Truth
from tests.helpers.inline_executor import InlineExecutor
from tests.helpers.simulated_finals import DEFAULT, DEVIATIONS, Truths, confirmed, swept


class Notes(InlineExecutor):
    """Remembers what it was asked, and may be killed at a job."""

    def __init__(self, truth: Truths, killed_at: int | None = None) -> None:
        super().__init__(FakeLine(truth, deviations=DEVIATIONS))
        self.jobs: list[AnyJob] = []
        self._killed_at = killed_at

    def submit(self, job: AnyJob, lane: int = 0) -> int:
        self.jobs.append(job)
        if len(self.audited) == self._killed_at:
            raise KeyboardInterrupt
        return super().submit(job, lane)

    @property
    def audited(self) -> list[str]:
        """The artifacts of which an audit was asked for."""
        return [job.artifacts[0].digest for job in self.jobs if isinstance(job, RaceJob) and job.audits]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with closing(Store.open(str(tmp_path / "studies.db"))) as opened:
        yield opened


def test_every_finalist_is_audited_in_each_process(store: Store) -> None:
    study = swept(store, simulated.truth, 20)
    by = Notes(simulated.truth)
    found = confirmed(store, study, by)
    finalists = {each.digest for each in found.finalists}
    assert set(found.standing.audits) == {each.digest for each in found.standing.finalists} == finalists
    assert set(by.audited) == finalists
    assert len(by.audited) >= 2 * len(finalists), "in each of its processes"
    for finalist in found.finalists:
        record = queries.trial(store, study, finalist.number)
        gate = standings.proven(store, record).gate
        assert [check.status for check in gate.checks if check.code == AUDIT] == ["pass"]


def test_a_finalist_that_never_led_is_found_out_too(store: Store) -> None:
    """Too slow to be promoted or to stay in the running, and never audited for that; yet its figure is quoted."""

    def keeps(variant: Variant) -> Truth:
        return Truth(us=50.0) if variant.digest == DEFAULT else Truth(us=56.0, honest_us=112.0)

    study = swept(store, keeps, 6)
    found = confirmed(store, study, Notes(keeps))
    default = next(each for each in found.finalists if each.variant.digest == DEFAULT)
    assert len(found.finalists) > 1
    assert set(found.revoked) == {each.number for each in found.finalists} - {default.number}
    assert set(standings.every_confirmed(store, study)) == {default.number}
    for number in found.revoked:
        assert "measure.memory" in (queries.trial(store, study, number).revoked_reason or "")
