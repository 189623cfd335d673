"""An incumbent that costs others their process is judged again, alone: it is revoked, and whom it spoilt is judged
again."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from autotuner.run.jobs import AnyJob, JudgeJob, Result
from autotuner.store import Store, queries
from autotuner.tuning.run.driver import Budget, Driver
from autotuner.tuning.run.plan import Plan
from autotuner.values import codes
from autotuner.values.gate_report import CheckResult, GateReport
from autotuner.values.outcome import Outcome
from autotuner.values.verdict import Fault, Verdict
from tests.helpers import simulated
from tests.helpers.inline_executor import InlineExecutor

SPACE = simulated.space()
CALM = 8
"""Races that end well."""
SEGV = Fault(verdict=Verdict.CRASHED, code="process.signal", detail="signal 11 (SIGSEGV) in measuring")
GONE = Fault(verdict=Verdict.INFRA_ERROR, code=codes.INCUMBENT, detail="the incumbent cannot be launched any more")


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with closing(Store.open(str(path))) as opened:
        yield opened


class Spoiling(InlineExecutor):
    """The incumbent of some races costs everybody the race from then on; `guilty`: alone it crashes too."""

    def __init__(self, width: int, fault: Fault, guilty: bool) -> None:
        super().__init__(simulated.backend(noise=0.005), width)
        self._fault, self._guilty = fault, guilty
        self.evil = ""
        self.races = 0
        self.spoilt: set[str] = set()
        self.heard: list[JudgeJob] = []

    def wait(self, timeout: float | None = None) -> tuple[int, Result] | None:
        job: AnyJob | None = self._waiting[0][1] if self._waiting else None
        fault = self._ending(job) if isinstance(job, JudgeJob) else None
        if fault is None or not isinstance(job, JudgeJob):
            return super().wait(timeout)
        number, _ = self._waiting.popleft()
        passed = CheckResult(code="G1.smoke", status="pass", seconds=0.0)
        gate = GateReport(artifact=job.built.artifact.digest, required=(), checks=(passed,), fault=fault)
        outcome = Outcome(
            variant=job.variant, verdict=fault.verdict, artifact=job.built.artifact, gate=gate, fault=fault
        )
        return number, outcome

    def _ending(self, job: JudgeJob) -> Fault | None:
        if job.soak == "chosen":
            self.heard.append(job)
            return SEGV if self._guilty else None
        if job.incumbent is None:
            return None
        self.races += 1
        if self.races == CALM:
            self.evil = job.incumbent.digest
        if job.incumbent.digest != self.evil:
            return None
        self.spoilt.add(job.variant.digest)
        return self._fault


def swept(store: Store, executor: Spoiling) -> dict[int, Outcome]:
    sweep = Driver(store, executor, Plan(SPACE, simulated.DEVICE, simulated.conditions()))
    sweep.run(Budget(trials=30))
    return {number: queries.trial(store, sweep.name, number).outcome for number, _ in store.outcomes(sweep.name)}


@pytest.mark.parametrize("width", [1, 4])
@pytest.mark.parametrize("fault", [SEGV, GONE], ids=["crashed", "not launched"])
def test_a_guilty_one_is_revoked_and_those_it_spoilt_are_measured(store: Store, width: int, fault: Fault) -> None:
    executor = Spoiling(width, fault, guilty=True)
    found = swept(store, executor)
    assert len(executor.heard) == 1
    assert executor.heard[0].built.artifact.digest == executor.evil
    assert executor.spoilt
    ends = {each.variant.digest: each.verdict for each in found.values()}
    assert all(ends[digest].has_latency for digest in executor.spoilt)
    assert not [each for each in found.values() if each.verdict in (Verdict.CRASHED, Verdict.INFRA_ERROR)]
    (study,) = store.study_ids
    (evil,) = (number for number, each in found.items() if each.artifact and each.artifact.digest == executor.evil)
    record = queries.trial(store, study, evil)
    assert record.revoked_reason is not None
    assert "signal 11" in record.revoked_reason


def test_one_that_is_acquitted_spoils_no_more_than_twice(store: Store) -> None:
    executor = Spoiling(1, SEGV, guilty=False)
    found = swept(store, executor)
    assert len(executor.heard) == 1
    assert len(executor.spoilt) == 2
    assert not [each for each in found.values() if each.verdict == Verdict.CRASHED]
