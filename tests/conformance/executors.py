"""What every executor must do. A test module inherits Contract and says what makes its executor.

The backends here are asked by their variant: IMPL says what happens to the job.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from autotuner.backends.fake import FakeBackend, Truth
from autotuner.errors import DiskFullError, OracleError
from autotuner.evaluate import CalibrationJob, Job, Result
from autotuner.executors import Executor
from autotuner.outcome import Artifact, Calibration, Fault, Outcome, Verdict
from autotuner.terms import Terms
from autotuner.variant import Variant
from tests.conformance.families import PROBLEM

TERMS = Terms(problems=(PROBLEM,), seeds=(1, 2, 3, 4), baselines=("fake",), min_blocks=2, max_blocks=2)


class PlayBackend(FakeBackend):
    """A variant of SLEEP sleeps; INPUT and ORACLE raise that error; the others are right."""

    def __init__(self) -> None:
        super().__init__(lambda variant: Truth(us=float(variant.parameters.get("US", 50))))

    def build(self, variant: Variant, terms: Terms) -> Artifact | Fault:
        if variant.impl == "input":
            raise DiskFullError("no room; make some")
        if variant.impl == "oracle":
            raise OracleError("the reference is wrong")
        if variant.impl == "sleep":
            time.sleep(float(variant.parameters["MS"]) / 1000)
        return super().build(variant, terms)


def play() -> PlayBackend:
    return PlayBackend()


def job(impl: str = "right", **parameters: int) -> Job:
    return Job(variant=Variant(family="play", backend="cpu", impl=impl, parameters=dict(parameters)), terms=TERMS)


def outcome(done: tuple[int, Result] | None) -> Outcome:
    assert done is not None
    assert isinstance(done[1], Outcome)
    return done[1]


class Contract:
    """Tests that an executor passes; a subclass defines `make`, an executor whose backend is `play()`."""

    def make(self) -> Executor:
        raise NotImplementedError

    @pytest.fixture
    def executor(self) -> Iterator[Executor]:
        with closing(self.make()) as made:
            yield made

    def test_nothing_submitted_is_nothing_to_wait_for(self, executor: Executor) -> None:
        assert executor.wait() is None
        assert executor.wait(0.0) is None

    def test_a_job_comes_back_under_its_number(self, executor: Executor) -> None:
        submitted = job(US=25)
        number = executor.submit(submitted)
        done = executor.wait(60)
        assert done is not None
        assert done[0] == number
        assert outcome(done).variant == submitted.variant
        assert outcome(done).verdict == Verdict.MEASURED
        assert executor.wait() is None

    def test_several_jobs_come_back_in_order_and_none_twice(self, executor: Executor) -> None:
        jobs = {executor.submit(each): each for each in (job(US=us) for us in (10, 20, 30, 40))}
        assert len(jobs) == 4
        for number, submitted in jobs.items():
            done = executor.wait(60)
            assert done is not None
            assert done[0] == number
            assert outcome(done).variant == submitted.variant
        assert executor.wait() is None

    def test_other_kinds_of_jobs_have_their_own_results(self, executor: Executor) -> None:
        executor.submit(CalibrationJob(terms=TERMS))
        done = executor.wait(60)
        assert done is not None
        assert isinstance(done[1], Calibration)
        assert done[1].baselines == ("fake",)

    def test_our_errors_are_raised_by_wait_and_the_next_job_goes_on(self, executor: Executor) -> None:
        for impl in ("input", "right", "oracle", "right"):
            executor.submit(job(impl))
        with pytest.raises(DiskFullError, match="no room; make some"):
            executor.wait(60)
        assert outcome(executor.wait(60)).verdict == Verdict.MEASURED
        with pytest.raises(OracleError, match="the reference is wrong"):
            executor.wait(60)
        assert outcome(executor.wait(60)).verdict == Verdict.MEASURED
        assert executor.wait() is None

    def test_close_ends_what_waits_and_may_be_called_twice(self) -> None:
        executor = self.make()
        executor.submit(job("sleep", MS=20))
        executor.submit(job())
        executor.close()
        assert executor.wait(0.0) is None
        executor.close()
