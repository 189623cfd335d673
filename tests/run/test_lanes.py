"""The lanes of LocalExecutor: builds beside the device's process, which serves several jobs until something is odd."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from autotuner.run.jobs import CalibrationJob, JudgeJob
from autotuner.run.local import Deadlines, LocalExecutor
from autotuner.values.errors import InfrastructureError
from autotuner.values.verdict import Verdict
from tests.conformance.executors import CONDITIONS, PlayBackend, build_job, judge_job, play, told
from tests.helpers import kills, preload, simulated_sweep
from tests.helpers.ends import comes_of, outcome

pytestmark = pytest.mark.timed

ROOT = Path(__file__).parent.parent.parent
JOBS = 4


def lanes(factory: Callable[[], PlayBackend] = play, start: float = 30) -> LocalExecutor:
    deadlines = Deadlines(start=start, check=1.5)
    return LocalExecutor(factory, preload.CPU, deadlines, builders=2, overlap=True, jobs_per_process=JOBS)


@pytest.fixture
def executor() -> Iterator[LocalExecutor]:
    with closing(lanes()) as made:
        yield made


# Which job runs when ------------------------------------------------------------------------------------------------


def test_builds_see_no_device(executor: LocalExecutor) -> None:
    said = comes_of(executor, build_job("tells", AS="build_failed", WHAT="devices"))
    assert said.fault.detail == ""
    assert told(executor, "devices") == os.environ.get("CUDA_VISIBLE_DEVICES", "all")


# One process, many jobs -----------------------------------------------------------------------------------------


def test_a_process_serves_so_many_jobs_and_is_replaced(executor: LocalExecutor) -> None:
    pids = [told(executor) for _ in range(2 * JOBS + 1)]
    assert [len(set(pids[i : i + JOBS])) for i in (0, JOBS)] == [1, 1]
    assert len(set(pids)) == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("odd", "verdict", "code"),
    [
        (judge_job("dies", NAME="the odd one"), Verdict.CRASHED, "process.signal"),
        (judge_job("sleep", MS=9000), Verdict.HUNG, "process.deadline"),
        (judge_job("babbles").model_copy(update={"soak": "never"}), Verdict.MEASURED, None),  # and ends at once
        (judge_job("raises"), Verdict.CRASHED, "process.exception"),
        (judge_job("tells", AS="corrupting", WHAT="pid"), Verdict.CORRUPTING, "told"),
        (judge_job("tells", AS="nondeterministic", WHAT="pid"), Verdict.NONDETERMINISTIC, "told"),
        (judge_job("tells", AS="launch_failed", WHAT="pid"), Verdict.LAUNCH_FAILED, "told"),
        (judge_job("tells", AS="impossible", WHAT="pid"), Verdict.IMPOSSIBLE, "told"),
    ],
    ids=lambda value: value.variant.impl if isinstance(value, JudgeJob) else str(value),
)
def test_after_anything_odd_the_next_job_has_a_fresh_process_and_its_own_verdict(
    executor: LocalExecutor, odd: JudgeJob, verdict: Verdict, code: str | None
) -> None:
    before = told(executor)
    executor.submit(odd)
    executor.submit(judge_job("sleep", MS=250))  # long enough for what an odd one writes late
    ended, following = outcome(executor.wait(60)), outcome(executor.wait(60))
    assert ended.verdict == verdict
    assert (ended.fault.code if ended.fault else None) == code
    assert following.verdict == Verdict.MEASURED
    assert told(executor) != before


def test_what_is_known_of_a_variant_that_crashes_is_kept(executor: LocalExecutor) -> None:
    crashed = comes_of(executor, judge_job("dies", NAME="it"))
    assert crashed.artifact == judge_job("dies", NAME="it").built.artifact
    assert crashed.seconds == {"build": 0.25}
    assert crashed.fault.case == "check"


def test_a_process_that_ends_between_jobs_is_nobodys_fault(executor: LocalExecutor) -> None:
    first = int(told(executor))
    os.kill(first, signal.SIGKILL)
    time.sleep(0.2)
    assert int(told(executor)) != first


def test_the_end_of_the_output_is_that_of_the_job(executor: LocalExecutor) -> None:
    told(executor)
    assert comes_of(executor, judge_job("dies", NAME="the first")).stderr_tail == "the last words of the first"
    told(executor)
    assert comes_of(executor, judge_job("dies", NAME="the second")).stderr_tail == "the last words of the second"


# With a driver -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_kills_amid_a_sweep_lose_and_repeat_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    command = [sys.executable, "-m", simulated_sweep.__name__, "studies.db", "30"]
    assert kills.killed(command, tmp_path, 2, 30, 0.5).proves_something


# The making of the backend -----------------------------------------------------------------------------------------


def gone() -> PlayBackend:
    os._exit(3)


def unfit() -> PlayBackend:
    raise InfrastructureError("the canary is dead")


def stuck() -> PlayBackend:
    time.sleep(50)
    raise AssertionError


def test_a_process_that_dies_at_the_start_says_nothing_about_the_variant() -> None:
    with closing(lanes(gone)) as executor:
        lost = comes_of(executor, judge_job())
        assert lost.verdict == Verdict.INFRA_ERROR
        assert lost.fault.detail == "it exited with status 3 in start"


@pytest.mark.parametrize(
    ("factory", "start", "why"), [(unfit, 30, "the canary is dead"), (stuck, 1, "does not answer: no end after")]
)
def test_a_device_that_does_not_work_is_told_to_the_driver(
    factory: Callable[[], PlayBackend], start: float, why: str
) -> None:
    with closing(lanes(factory, start)) as executor:
        for job in (judge_job(), CalibrationJob(conditions=CONDITIONS)):
            executor.submit(job)
            with pytest.raises(InfrastructureError, match=why):
                executor.wait(60)
