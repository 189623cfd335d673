"""A device whose memory another program has: it is waited for, and no variant is blamed."""

import os
import weakref
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
import torch

from autotuner.race.arms import Tracks
from autotuner.run import jobs
from autotuner.run.jobs import perform
from autotuner.run.line import Passed
from autotuner.run.local import LocalExecutor
from autotuner.store import Store
from autotuner.tuning.finals import standings
from autotuner.values.conditions import Conditions
from autotuner.values.errors import DeviceFullError
from autotuner.values.gate_report import GateReport
from autotuner.values.outcome import Artifact, Calibration, Outcome, Say
from autotuner.values.verdict import Fault, Verdict
from tests.conformance.executors import PlayBackend, judge_job, race_job
from tests.helpers import preload, simulated
from tests.helpers.driven import swept
from tests.helpers.ends import comes_of
from tests.helpers.fake_line import FakeLine, Truth
from tests.helpers.inline_executor import InlineExecutor

SMALL = simulated.small_space()
OURS = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nand more")
THE_DRIVERS = torch.AcceleratorError("CUDA error: out of memory\nand more")


class Full(PlayBackend):
    """Its device has no memory for the first tries of whatever is asked of it."""

    def __init__(self, tries: int, error: Exception = OURS) -> None:
        super().__init__()
        self.left, self._error = tries, error

    def _take(self) -> None:
        if self.left:
            self.left -= 1
            raise self._error

    def calibrate(self, conditions: Conditions, say: Say) -> Calibration:
        self._take()
        return super().calibrate(conditions, say)

    def check(self, artifact: Artifact, conditions: Conditions, say: Say, passed: Passed | None = None) -> GateReport:
        self._take()
        return super().check(artifact, conditions, say, passed)

    def tracks(self, conditions: Conditions) -> Tracks:
        self._take()
        return super().tracks(conditions)


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "FULL_PAUSES_S", (0.0, 0.0))


@pytest.mark.parametrize("error", [OURS, THE_DRIVERS, DeviceFullError("the memory of the device is full: a launch")])
def test_memory_that_comes_back_costs_a_variant_nothing(error: Exception) -> None:
    said: list[str] = []
    found = perform(judge_job(), Full(2, error), said.append)
    assert isinstance(found, Outcome)
    assert found.verdict == Verdict.MEASURED
    waits = [step for step in said if step.startswith("waiting for memory: the memory of the device is full: ")]
    assert len(waits) == 2
    assert not any("more" in step for step in waits)


@pytest.mark.slow
def test_memory_that_does_not_come_back_is_a_disturbed_machine() -> None:
    found = perform(judge_job(), Full(3), lambda _: None)
    assert isinstance(found, Outcome)
    assert (found.verdict, found.fault.code) == (Verdict.DISTURBED, "measure.full")
    assert found.fault.detail == "the memory of the device is full: CUDA out of memory. Tried to allocate 2.00 GiB."
    assert found.measurement is None
    raced = perform(race_job("right"), Full(3), lambda _: None)
    assert isinstance(raced, Fault)
    assert (raced.verdict, raced.code) == (Verdict.DISTURBED, "measure.full")


class Holds(PlayBackend):
    """A failed try holds something in the frame that raises."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[weakref.ref[Thing]] = []

    def check(self, artifact: Artifact, conditions: Conditions, say: Say, passed: Passed | None = None) -> GateReport:
        if self.held:
            assert self.held[-1]() is None
        if len(self.held) == 2:
            return super().check(artifact, conditions, say, passed)
        thing = Thing()
        self.held.append(weakref.ref(thing))
        error = DeviceFullError("the memory of the device is full")  # refers to this frame, which refers to it
        raise error


class Thing:
    """Stands for a tensor."""


def test_what_a_failed_try_held_is_let_go_before_the_next() -> None:
    backend = Holds()
    found = perform(judge_job(), backend, lambda _: None)
    assert isinstance(found, Outcome)
    assert (found.verdict, len(backend.held)) == (Verdict.MEASURED, 2)


class NotesProcesses(Full):
    """Notes the process of each judging."""

    def __init__(self, folder: Path) -> None:
        super().__init__(0)
        self._folder = folder

    def check(self, artifact: Artifact, conditions: Conditions, say: Say, passed: Passed | None = None) -> GateReport:
        if passed is None:
            with (self._folder / "pids").open("a") as file:
                file.write(f"{os.getpid()}\n")
        if artifact.variant.impl == "hogs":
            raise OURS
        return super().check(artifact, conditions, say, passed)


def hogging(folder: Path) -> NotesProcesses:
    vars(jobs)["FULL_PAUSES_S"] = ()  # of the process that judges
    return NotesProcesses(folder)


@pytest.fixture
def executor(tmp_path: Path) -> Iterator[LocalExecutor]:
    made = LocalExecutor(partial(hogging, tmp_path), preload.CPU, overlap=True, jobs_per_process=20)
    with closing(made) as executor:
        yield executor


@pytest.mark.slow
def test_what_follows_is_judged_in_another_process(executor: LocalExecutor, tmp_path: Path) -> None:
    """A variant may have taken the memory: the end of its process gives it back."""
    for impl, verdict in (("right", Verdict.MEASURED), ("hogs", Verdict.DISTURBED), ("right", Verdict.MEASURED)):
        assert comes_of(executor, judge_job(impl)).verdict == verdict
    first, hog, last = (tmp_path / "pids").read_text().split()
    assert first == hog != last


class HogsAPoint(FakeLine):
    """No memory is left for one point, so many times."""

    def __init__(self, times: int) -> None:
        super().__init__(lambda variant: Truth(us=simulated.microseconds(variant.point)))
        self._point, self._left = SMALL.point(5), times

    def check(self, artifact: Artifact, conditions: Conditions, say: Say, passed: Passed | None = None) -> GateReport:
        if artifact.variant.point == self._point and self._left:
            self._left -= 1
            raise OURS
        return super().check(artifact, conditions, say, passed)


@pytest.mark.parametrize("times", [2, 100])
def test_a_sweep_judges_it_again_and_gives_it_up_at_last(
    path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    monkeypatch.setattr(jobs, "FULL_PAUSES_S", ())
    with closing(Store.open(str(path))) as store:
        study = swept(store, InlineExecutor(HogsAPoint(times)), 10**6, space=SMALL)
        judged = standings.summary(store, study).judged
        found = list(dict(store.outcomes(study)).values())
    full = [each.fault.code for each in found if each.fault is not None]
    assert full == ["measure.full"] * min(times, 4)
    assert judged == len(SMALL) - (times > 4)
