"""What is lost for reasons that are not known: the fork server, a process that somebody kills, an exception from where
variants run. It is tried once more, and what comes again there counts."""

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from autotuner.devices.cpu.toolchain import CpuToolchain
from autotuner.run import fork_server, local, scratch
from autotuner.run.fork_server import server_pid
from autotuner.run.jobs import CalibrationJob
from autotuner.run.local import LocalExecutor
from autotuner.run.scratch import Scratch
from autotuner.values.conditions import Conditions
from autotuner.values.errors import DiskFullError, InfrastructureError, InputError
from autotuner.values.outcome import Calibration, Say
from autotuner.values.verdict import Verdict
from tests.conformance.executors import CONDITIONS, PlayBackend, build_job, fresh_job, judge_job, notes, play, race_job
from tests.helpers import preload
from tests.helpers.conduct_driver import CONDITIONS as CONDUCT, conduct, judges
from tests.helpers.ends import comes_of, outcome
from tests.helpers.judging import KERNELS, judged, result
from tests.helpers.processes import gone, wait_for

ANOTHER = pytest.mark.sampled(1, of="ends of a fork server")


@pytest.fixture
def executor() -> Iterator[LocalExecutor]:
    with closing(LocalExecutor(play, preload.CPU)) as made:
        comes_of(made, judge_job())  # the fork server is up
        yield made


@pytest.fixture
def side_by_side() -> Iterator[LocalExecutor]:
    with closing(
        LocalExecutor(play, preload.CPU, builders=1, overlap=True, jobs_per_process=20, devices=("a", "b"))
    ) as made:
        comes_of(made, judge_job())
        yield made


def come(folder: Path, count: int, what: str = "begin") -> list[int]:
    """The processes that have noted `what`, as soon as there are `count`."""
    wait_for(lambda: len(notes(folder, what)) >= count, 30)
    return [note.pid for note in notes(folder, what)]


def works(folder: Path, name: str = "A", **more: int) -> dict[str, str | int]:
    return {"FOLDER": str(folder), "NAME": name, **more}


# The fork server ----------------------------------------------------------------------------------------------------


def strike(number: int) -> int:
    """Sends a signal to the fork server, which shows at once; its number. One that is asked before that is waited for
    until its deadline."""
    pid = server_pid()
    assert pid is not None
    os.kill(pid, number)
    wait_for(lambda: not fork_server.is_well(pid))
    return pid


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=[pytest.mark.slow, ANOTHER])])
def test_a_fork_server_that_ends_between_jobs_is_replaced(executor: LocalExecutor, number: int) -> None:
    before = strike(number)
    for job in (build_job("tells", AS="build_failed", WHAT="pid"), judge_job(), race_job("right")):
        executor.submit(job)
        assert executor.wait(60) is not None
    assert server_pid() != before


@pytest.fixture
def stranger() -> Iterator[BaseProcess]:
    """A process that the program has started for something else."""
    process = get_context("spawn").Process(target=time.sleep, args=(600,))
    process.start()
    yield process
    process.kill()
    process.join()


@pytest.mark.slow
def test_fresh_jobs_lie_at_several_addresses(
    executor: LocalExecutor, stranger: BaseProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "SAME_LAYOUT", 2)
    servers = []
    for _ in range(4):
        assert comes_of(executor, fresh_job()).verdict == Verdict.MEASURED
        servers.append(server_pid())
    assert stranger.is_alive()
    assert len(set(servers)) == 3
    assert servers[1] == servers[2]


@pytest.mark.timed
@pytest.mark.parametrize("number", [pytest.param(signal.SIGKILL, marks=[pytest.mark.slow, ANOTHER]), signal.SIGSTOP])
def test_jobs_under_way_come_to_their_end_on_another_fork_server(
    side_by_side: LocalExecutor, tmp_path: Path, number: int
) -> None:
    executor = side_by_side
    numbers = {
        executor.submit(judge_job("works", **works(tmp_path, name, MS=700)), lane) for lane, name in enumerate("AB")
    }
    numbers.add(executor.submit(build_job("sleep", MS=700)))
    come(tmp_path, 2)
    strike(number)
    found = dict(filter(None, (executor.wait(60) for _ in range(3))))
    assert found.keys() == numbers
    assert [outcome((0, found[each])).verdict for each in sorted(numbers)[:2]] == 2 * [Verdict.MEASURED]
    assert comes_of(executor, judge_job()).verdict == Verdict.MEASURED


@pytest.mark.slow
def test_a_variant_that_kills_the_fork_server_again_is_to_blame_and_no_other(
    side_by_side: LocalExecutor, tmp_path: Path
) -> None:
    executor = side_by_side
    beside = executor.submit(judge_job("works", **works(tmp_path, MS=300)), 1)
    come(tmp_path, 1)
    guilty = executor.submit(judge_job("kills_the_server"), 0)
    found = dict(filter(None, (executor.wait(60) for _ in range(2))))
    assert outcome((0, found[beside])).verdict == Verdict.MEASURED
    blamed = outcome((0, found[guilty]))
    assert (blamed.verdict, blamed.fault.code) == (Verdict.CRASHED, "process.server")


INTERRUPTED = """
import os, signal, sys, time
from autotuner.run.fork_server import ForkServer, server_pid
sys.path.insert(0, sys.argv[1])
ForkServer(["takes_long"])
for _ in range(10):
    time.sleep(0.05)
    os.kill(server_pid(), signal.SIGINT)
os.kill(server_pid(), signal.SIGKILL)
"""


def test_a_fork_server_that_imports_does_not_hear_ctrl_c(tmp_path: Path) -> None:
    (tmp_path / "takes_long.py").write_text("import time\ntime.sleep(60)\n")
    done = subprocess.run([sys.executable, "-c", INTERRUPTED, tmp_path], capture_output=True, text=True, check=True)
    assert not done.stderr


@pytest.mark.timed
@pytest.mark.sampled(1, of="whole sweeps")
@pytest.mark.slow
def test_a_start_has_a_deadline(executor: LocalExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is stopped at the very moment at which it is asked."""
    monkeypatch.setattr(executor._server, "_start_s", 15.0)
    before = strike(signal.SIGSTOP)
    well = fork_server.is_well

    def is_well(pid: int | None) -> bool:
        return well(pid) or (pid == before and fork_server.state_of(before) not in fork_server.GONE)

    monkeypatch.setattr(fork_server, "is_well", is_well)
    assert comes_of(executor, build_job("tells", AS="build_failed", WHAT="pid")).verdict == Verdict.BUILD_FAILED
    assert server_pid() != before


def test_a_machine_that_starts_no_process_is_told(executor: LocalExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(executor._server.context.Process, "start", refuse)

    def give() -> None:
        executor.submit(judge_job())
        executor.wait(60)

    with pytest.raises(InfrastructureError, match="no process could be started"):
        give()


# A process ----------------------------------------------------------------------------------------------------------


@pytest.mark.timed
@pytest.mark.parametrize(("kills", "verdict"), [(1, Verdict.MEASURED), (2, Verdict.CRASHED)])
def test_a_kill_from_outside_is_no_verdict_before_it_comes_again(
    side_by_side: LocalExecutor, tmp_path: Path, kills: int, verdict: Verdict
) -> None:
    side_by_side.submit(judge_job("works", **works(tmp_path, MS=1000)).model_copy(update={"soak": "never"}))
    for count in range(1, kills + 1):
        while len(notes(tmp_path, "begin")) < count:
            assert side_by_side.wait(0.02) is None
        os.kill(notes(tmp_path, "begin")[-1].pid, signal.SIGKILL)
    assert outcome(side_by_side.wait(60)).verdict == verdict
    assert len({note.pid for note in notes(tmp_path, "begin")}) == 2


class KilledOnce(PlayBackend):
    """Its first calibration is killed."""

    def __init__(self, mark: Path) -> None:
        super().__init__()
        self._mark = mark

    def calibrate(self, conditions: Conditions, say: Say) -> Calibration:
        if not self._mark.exists():
            self._mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().calibrate(conditions, say)


def test_a_calibration_that_is_killed_is_done_again(tmp_path: Path) -> None:
    with closing(LocalExecutor(partial(KilledOnce, tmp_path / "mark"), preload.CPU)) as executor:
        assert isinstance(result(executor, CalibrationJob(conditions=CONDITIONS), 60), Calibration)


@pytest.mark.parametrize("what", ["raises", "input"])
def test_nothing_that_is_raised_after_a_variant_was_loaded_is_believed(executor: LocalExecutor, what: str) -> None:
    executor.submit(judge_job(what))
    executor.submit(judge_job())
    blamed = outcome(executor.wait(60))
    assert (blamed.verdict, blamed.fault.code) == (Verdict.CRASHED, "process.exception")
    assert outcome(executor.wait(60)).verdict == Verdict.MEASURED


def test_a_disk_that_is_full_is_no_variants_fault(executor: LocalExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "SPARE_BYTES", 1 << 62)
    executor.submit(judge_job("raises"))
    with pytest.raises(DiskFullError, match="no space left in"):
        executor.wait(60)


# What is left behind ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("act", [pytest.param("leaves_a_session", marks=pytest.mark.slow), "leaves_an_orphan"])
def test_no_child_gets_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, toolchain: CpuToolchain, act: str) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with closing(judges(toolchain, KERNELS / "conduct", check=20)) as executor:
        assert judged(executor, conduct(act), CONDUCT).verdict == Verdict.CRASHED
        assert gone(tmp_path)


def abandoned(folder: Path, code: str) -> Path:
    """The folder of a driver that was killed."""
    program = (
        "import os, signal, sys, tempfile; from autotuner.run.scratch import Scratch\n"
        f"tempfile.tempdir = {str(folder)!r}; kept = Scratch(); (kept.folder() / 'file').write_text('x'); {code}"
    )
    subprocess.run([sys.executable, "-c", program], check=False, timeout=60)
    (found,) = folder.glob(f"{scratch.PREFIX}*")
    return found


def test_the_folder_of_a_killed_driver_is_removed_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = abandoned(tmp_path, "os.kill(os.getpid(), signal.SIGKILL)")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with closing(Scratch()) as first:
        assert not left.exists()
        with closing(Scratch()):
            assert first.folder().is_dir(), "its driver lives"
    assert not list(tmp_path.iterdir())


def test_a_driver_that_begins_leaves_alone_one_that_has_just_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    flock = fcntl.flock

    def late(lock: int, how: int) -> None:
        if how == fcntl.LOCK_EX:
            scratch.remove_abandoned(tmp_path)
        flock(lock, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with closing(Scratch()) as begun:
        assert begun.folder().is_dir()


def test_a_folder_from_which_nothing_can_be_loaded_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    flags = os.statvfs("/")
    mounted = os.statvfs_result((*flags[:8], flags.f_flag | os.ST_NOEXEC, flags.f_namemax))
    monkeypatch.setattr(os, "statvfs", lambda path: mounted)
    with pytest.raises(InputError, match=r" is mounted noexec.*; set TMPDIR to another folder$"):
        Scratch()


def test_nothing_but_our_own_folders_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    precious = tmp_path / "precious"
    precious.mkdir()
    (tmp_path / f"{scratch.PREFIX}link").symlink_to(precious)
    (tmp_path / f"{scratch.PREFIX}file").write_text("x")
    (tmp_path / f"{scratch.PREFIX}new").mkdir()
    Scratch().close()
    assert len(list(tmp_path.iterdir())) == 4
    old = tmp_path / f"{scratch.PREFIX}old"
    old.mkdir()
    os.utime(old, (0, 0))
    Scratch().close()
    assert not old.exists()
