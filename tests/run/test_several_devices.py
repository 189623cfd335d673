"""Several devices, and builds in turns with one: the lanes of LocalExecutor."""

import contextlib
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from autotuner.run.executor import Executor
from autotuner.run.job_process import JobProcess
from autotuner.run.jobs import Built
from autotuner.run.local import Deadlines, LocalExecutor
from autotuner.values.variant import Value
from autotuner.values.verdict import Verdict
from tests.conformance.executors import Contract, build_job, crowds, judge_job, play, told
from tests.helpers import preload
from tests.helpers.ends import comes_of, next_of, outcome
from tests.helpers.processes import gone

DEVICES = ("GPU-first", "GPU-second")


def two_lanes(check: float = 30, jobs: int = 20) -> LocalExecutor:
    deadlines = Deadlines(check=check)
    return LocalExecutor(play, preload.CPU, deadlines, builders=2, overlap=True, jobs_per_process=jobs, devices=DEVICES)


@pytest.fixture
def lanes() -> Iterator[LocalExecutor]:
    with closing(two_lanes()) as made:
        yield made


@pytest.fixture
def shared() -> Iterator[LocalExecutor]:
    with closing(LocalExecutor(play, preload.CPU, builders=2)) as made:
        yield made


@pytest.mark.timed
class TestTwoLanes(Contract):
    """Its processes are replaced before a test of several jobs ends."""

    def make(self) -> Executor:
        return two_lanes(jobs=2)


def numbers_of(executor: Executor, count: int) -> list[int]:
    """The next `count` jobs that end well, in that order."""
    found = []
    for _ in range(count):
        done = next_of(executor)
        assert isinstance(done[1], Built) or outcome(done).verdict == Verdict.MEASURED, done[1]
        found.append(done[0])
    return found


def status(pid: str) -> list[str]:
    """What /proc says of a process after its name: state, parent, ...; nothing when it has gone."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return []


# Lanes --------------------------------------------------------------------------------------------------------------


@pytest.mark.timed
def test_lanes_and_builds_run_side_by_side(lanes: LocalExecutor, tmp_path: Path) -> None:
    """Each goes on only when all are there."""
    assert (lanes.lanes, lanes.width) == (2, 6)
    for number in range(2):
        lanes.submit(judge_job("meets", FOLDER=str(tmp_path), NAME=f"lane {number}", COUNT=4), number)
        lanes.submit(build_job("meets", FOLDER=str(tmp_path), NAME=f"build {number}", COUNT=4))
    assert sorted(numbers_of(lanes, 4)) == [0, 1, 2, 3]


@pytest.mark.timed
def test_after_something_odd_only_its_lane_has_a_new_process(lanes: LocalExecutor) -> None:
    before = [told(lanes, lane=lane) for lane in range(2)]
    assert comes_of(lanes, judge_job("dies", NAME="it"), 0).verdict == Verdict.CRASHED
    after = [told(lanes, lane=lane) for lane in range(2)]
    assert after[0] not in before
    assert after[1] == before[1]


@pytest.mark.timed
def test_a_killed_process_that_takes_its_time_to_go_holds_up_only_its_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one does whose kernel hangs on a GPU."""
    with closing(two_lanes(check=1)) as executor:
        told(executor, lane=1)
        executor.submit(judge_job("babbles_now"), 0)
        with monkeypatch.context() as patch:
            patch.setattr(JobProcess, "has_gone", False)
            assert outcome(executor.wait(60)).verdict == Verdict.CRASHED
            waiting = executor.submit(judge_job(), 0)
            following = [executor.submit(judge_job(), 1) for _ in range(2)]
            assert numbers_of(executor, 2) == following
            assert executor.wait(0.2) is None
        assert numbers_of(executor, 1) == [waiting]


@pytest.mark.timed
def test_closing_ends_all_lanes_and_all_that_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with closing(two_lanes()) as executor:
        idle = told(executor, lane=0)
        executor.submit(build_job("sleep", MS=20000))
        for _ in range(2):
            executor.submit(judge_job("sleep", MS=20000), 1)
        assert executor.wait(0.5) is None
        started = time.monotonic()
    assert time.monotonic() - started < 19  # the jobs sleep for 20
    assert gone(tmp_path)
    assert not status(idle)
    assert executor.wait(0.0) is None


# Turns --------------------------------------------------------------------------------------------------------------


def test_no_build_runs_beside_a_job_on_the_device(shared: LocalExecutor, tmp_path: Path) -> None:
    """All at once, in a bad order."""
    assert (shared.lanes, shared.width) == (1, 8)
    job: dict[str, Value] = {"FOLDER": str(tmp_path)}
    submitted = set()
    for number in range(4):
        submitted.add(shared.submit(judge_job("alone", NAME=f"judging{number}", **job)))
        submitted.add(shared.submit(build_job("alone", NAME=f"build{number}", **job)))
    assert set(numbers_of(shared, 8)) == submitted
    judgings = [crowd for crowd in crowds(tmp_path) if any(name.startswith("judging") for name in crowd)]
    assert {name for crowd in judgings for name in crowd} == {f"judging{number}" for number in range(4)}
    assert all(len(crowd) == 1 for crowd in judgings)


@pytest.mark.parametrize("builders", [2, 3])
def test_as_many_builds_run_as_there_are_builders_and_no_more(builders: int, tmp_path: Path) -> None:
    """The first go on only when all are there."""
    with closing(LocalExecutor(play, preload.CPU, builders=builders)) as executor:
        for number in range(builders):
            executor.submit(build_job("meets", FOLDER=str(tmp_path), NAME=str(number), COUNT=builders))
        numbers_of(executor, builders)
        for number in range(2 * builders):
            executor.submit(build_job("alone", FOLDER=str(tmp_path), NAME=str(number)))
        numbers_of(executor, 2 * builders)
    assert max(len(crowd) for crowd in crowds(tmp_path)) <= builders
