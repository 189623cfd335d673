"""Executors: the contract, and that no variant harms anything but its own trial.

What the gate says of each mutant is in tests/conformance/test_devices.py; here it is what happens to the processes.
"""

import contextlib
import errno
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from autotuner.devices.cpu.toolchain import CpuToolchain
from autotuner.forge.build import build
from autotuner.forge.family import Family
from autotuner.run import job_process
from autotuner.run.executor import Executor
from autotuner.run.jobs import BuildJob, Built, CalibrationJob, JudgeJob, RaceJob
from autotuner.run.local import Deadlines, LocalExecutor
from autotuner.values import config
from autotuner.values.errors import InfrastructureError
from autotuner.values.outcome import Artifact, Heat
from autotuner.values.variant import Variant
from autotuner.values.verdict import Fault, Verdict
from tests.conformance.executors import Contract, PlayBackend, build_job, judge_job, play, race_job
from tests.helpers import conduct_driver, preload, zygote_witness
from tests.helpers.conduct_driver import CONDITIONS, conduct, judges
from tests.helpers.ends import comes_of, next_of, outcome
from tests.helpers.inline_executor import InlineExecutor
from tests.helpers.judging import KERNELS, artifact_of, cpu_judge, judged, result as ended, tiny, wrapper
from tests.helpers.processes import gone, using, wait_for

pytestmark = pytest.mark.timed

ROOT = Path(__file__).parent.parent.parent
SYSTEMIC = ROOT / "tests" / "mutants" / "systemic"
END_OF_A_SERVER = pytest.mark.sampled(1, of="ends of a fork server")
"""Whatever ends one, the next takes seconds to import."""


class TestInlineExecutor(Contract):
    def make(self) -> Executor:
        return InlineExecutor(play())


class TestLocalExecutor(Contract):
    def make(self) -> LocalExecutor:
        return LocalExecutor(play, preload=preload.CPU, deadlines=Deadlines(build=1), builders=2)

    def test_wait_gives_up_in_time_and_loses_nothing(self, executor: Executor) -> None:
        comes_of(executor, judge_job())  # the zygote is up
        number = executor.submit(judge_job("sleep", MS=3000))
        started = time.monotonic()
        assert executor.wait(0.0) is None
        assert executor.wait(0.2) is None
        assert time.monotonic() - started < 2.5
        done = next_of(executor)
        assert done[0] == number
        assert outcome(done).verdict == Verdict.MEASURED

    def test_a_job_that_fails_by_itself_says_nothing_about_its_variant(self) -> None:
        with closing(LocalExecutor(broken, preload=preload.CPU)) as executor:
            for job in (build_job(), judge_job()):
                result = comes_of(executor, job)
                assert result.verdict == Verdict.INFRA_ERROR
                assert "ZeroDivisionError" in result.fault.detail
                assert "in broken" in result.stderr_tail
            executor.submit(CalibrationJob(conditions=CONDITIONS))
            with pytest.raises(InfrastructureError, match="ZeroDivisionError"):
                executor.wait(60)
            assert comes_of(executor, judge_job()).verdict == Verdict.INFRA_ERROR

    def test_a_race_that_costs_its_process_ends_with_a_fault(self, executor: Executor) -> None:
        ends = {
            "dies_in_race": (Verdict.CRASHED, "process.signal"),
            "raises_in_race": (Verdict.CRASHED, "process.exception"),
        }
        for impl, (verdict, code) in ends.items():
            fault = ended(executor, race_job("right", impl), 60)
            assert isinstance(fault, Fault)
            assert (fault.verdict, fault.code) == (verdict, code)
        assert isinstance(ended(executor, race_job("right"), 60), Heat)

    def test_a_death_in_the_audit_is_no_failure_of_a_check(self, executor: Executor, tmp_path: Path) -> None:
        """The gate was passed before, and what came after it counts for none of its checks."""
        began = time.monotonic()
        job = judge_job("dies_in_audit", NAME="last", FOLDER=str(tmp_path))
        executor.submit(job)  # nothing leads yet: it is promoted, and audited before that
        while not (tmp_path / "the audit").exists():
            assert executor.wait(0.02) is None
        assert executor.wait(0.0) is None  # all that was said has been read
        longest = time.monotonic() - began
        time.sleep(0.5)
        (tmp_path / "the test").touch()
        lost = outcome(executor.wait(60))
        assert (lost.verdict, lost.fault.code) == (Verdict.CRASHED, "process.signal")
        assert "in audit" in lost.fault.detail
        assert lost.gate is not None
        assert {check.status for check in lost.gate.checks} == {"pass"}
        assert lost.gate.checks[0].code == "G1.last"
        assert sum(check.seconds for check in lost.gate.checks) <= longest

    def test_a_build_that_outlives_its_deadline_is_our_failure(self, executor: Executor) -> None:
        result = comes_of(executor, build_job("sleep", MS=20000))
        assert result.verdict == Verdict.INFRA_ERROR
        assert result.fault.detail == "no end after 1 s in build; the process was killed"


def broken() -> PlayBackend:
    raise ZeroDivisionError


# The real backend -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the jobs' output goes, which tells their processes."""
    folder = tmp_path_factory.mktemp("logs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(folder))
        yield folder


@pytest.fixture(scope="module")
def acts(logs: Path, toolchain: CpuToolchain) -> Iterator[LocalExecutor]:
    with closing(judges(toolchain, KERNELS / "conduct", check=1.5)) as executor:
        yield executor


@pytest.fixture(scope="module")
def mutants(logs: Path, toolchain: CpuToolchain) -> Iterator[LocalExecutor]:
    with closing(judges(toolchain, SYSTEMIC, check=2)) as executor:
        yield executor


@pytest.mark.parametrize(
    ("act", "verdict", "code"),
    [
        ("last_words", Verdict.CRASHED, "process.signal"),
        ("sends_garbage", Verdict.CRASHED, "process.garbage"),
        pytest.param("announces_steps_without_end", Verdict.CRASHED, "process.garbage", marks=pytest.mark.slow),
        pytest.param("sends_half_a_message", Verdict.HUNG, "process.deadline", marks=pytest.mark.slow),
        ("leaves_a_child", Verdict.CRASHED, "process.signal"),
        pytest.param("leaves_a_child_and_hangs", Verdict.HUNG, "process.deadline", marks=pytest.mark.slow),
        pytest.param("kills_the_zygote", Verdict.CRASHED, "process.", marks=[pytest.mark.slow, END_OF_A_SERVER]),
    ],
)
def test_misconduct_ends_with_a_verdict_and_leaves_no_process(
    acts: LocalExecutor, logs: Path, act: str, verdict: Verdict, code: str
) -> None:
    result = judged(acts, conduct(act), CONDITIONS)
    assert result.verdict == verdict
    assert result.fault.code.startswith(code)
    assert result.fault.case == "G1.smoke"
    assert gone(logs)


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize(("act", "number"), [("takes_all_memory", errno.ENOMEM), ("takes_all_files", errno.EMFILE)])
def test_what_the_judge_lacks_after_a_right_answer_is_the_variants_fault(
    toolchain: CpuToolchain, act: str, number: int
) -> None:
    """The call itself is right; what the judge does next fails, by an exception of its own."""
    with closing(judges(toolchain, KERNELS / "conduct", check=30)) as executor:
        result = judged(executor, conduct(act), CONDITIONS)
        assert (result.verdict, result.fault.code) == (Verdict.CRASHED, "process.exception")
        assert os.strerror(number) in result.fault.detail
        assert result.fault.detail.endswith(", twice")
        assert judged(executor, conduct("last_words"), CONDITIONS).verdict == Verdict.CRASHED


def test_the_end_of_what_a_variant_printed_is_kept(acts: LocalExecutor) -> None:
    result = judged(acts, conduct("last_words"), CONDITIONS)
    assert re.fullmatch(r"signal \d+ \(SIG(ILL|TRAP)\) in G1\.smoke", result.fault.detail)
    assert result.stderr_tail.endswith("line 499\nlast words \ufffd")
    assert 1000 < len(result.stderr_tail) <= 2000


@pytest.mark.sampled(2)
@pytest.mark.parametrize("becomes", ["a_pipe", "a_link", "a_folder", "large"])
def test_what_a_variant_put_in_the_place_of_its_output_is_not_read(acts: LocalExecutor, becomes: str) -> None:
    """The driver has no cage: it would wait at a pipe, show a file that the variant may not read, and fill memory."""
    result = judged(acts, conduct(f"log_becomes_{becomes}"), CONDITIONS)
    assert result.verdict.judges
    assert result.stderr_tail == ""
    assert judged(acts, conduct("last_words"), CONDITIONS).verdict == Verdict.CRASHED


def test_folders_in_folders_without_end_are_removed(acts: LocalExecutor, logs: Path) -> None:
    result = judged(acts, conduct("makes_deep_folders"), CONDITIONS)
    assert (result.verdict, result.fault.code) == (Verdict.CRASHED, "process.signal")
    assert not [*logs.glob("*/*/d")]


def mutant(name: str) -> Variant:
    return Variant(family="systemic", backend="cpu", impl="mutant", parameters={"MUTANT": name})


def library(toolchain: CpuToolchain, name: str) -> Artifact:
    return artifact_of(build(Family.load(SYSTEMIC), mutant(name), CONDITIONS.compiled_for, toolchain))


def judging(toolchain: CpuToolchain, name: str) -> JudgeJob:
    return JudgeJob(built=Built(artifact=library(toolchain, name), seconds=0.0), conditions=CONDITIONS, soak="never")


def race(toolchain: CpuToolchain) -> RaceJob:
    """The timing of a right variant: it must go as if nothing had happened before."""
    return RaceJob(artifacts=(library(toolchain, "none"),), conditions=CONDITIONS, blocks=2)


def names() -> list[object]:
    """Mutants that spoil their process; one of them stands for the others in the fast tests."""
    entries = tomllib.loads((SYSTEMIC.parent / "expected.toml").read_text())["systemic"]
    ending = [(e["name"], e["codes"]) for e in entries if {"crashed", "hung"} & set(e["codes"]) and "chosen_s" not in e]
    others = [pytest.mark.slow, pytest.mark.sampled(2)]
    marks = {name: [] if name == "kills_itself" else others for name, _ in ending}
    return [pytest.param(name, codes, id=name, marks=marks[name]) for name, codes in ending]


@pytest.mark.parametrize(("name", "codes"), names())
def test_a_mutant_takes_only_its_own_process_along(
    mutants: LocalExecutor, toolchain: CpuToolchain, logs: Path, name: str, codes: list[str]
) -> None:
    numbers = [mutants.submit(judging(toolchain, name)), mutants.submit(race(toolchain))]
    ended, timed = mutants.wait(60), mutants.wait(60)
    assert ended is not None
    assert timed is not None
    assert [ended[0], timed[0]] == numbers
    result = outcome(ended)
    said = {result.fault.code, str(result.verdict)} if result.fault else {"pass"}
    assert said & set(codes), result.fault
    assert (result.measurement is None) == ("pass" not in said)
    assert isinstance(timed[1], Heat)
    assert not timed[1].faults
    assert gone(logs)


def test_a_right_variant_is_judged_as_usual_after_all_that(mutants: LocalExecutor, logs: Path) -> None:
    result = judged(mutants, mutant("none"), CONDITIONS, soak="never")
    assert result.verdict in (Verdict.MEASURED, Verdict.RACED_OUT), result.fault
    assert result.gate.passed
    assert gone(logs)


def test_a_redefined_parameter_fails_the_gate(logs: Path, toolchain: CpuToolchain) -> None:
    with closing(judges(toolchain, KERNELS / "tiny", check=30)) as executor:
        result = judged(executor, tiny("redefines"), CONDITIONS)
    assert (result.verdict, result.fault.code) == (Verdict.BUILD_FAILED, "G0.identity")
    assert "'SIZE': '5'" in result.fault.detail


def test_closing_amid_a_build_leaves_no_compiler(
    tmp_path: Path, toolchain: CpuToolchain, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = wrapper(tmp_path, f'case "$*" in *unit.cpp*) cd "{tmp_path}"; sleep 50;; esac', monkeypatch)
    slow = toolchain.model_copy(update={"compiler": str(compiler)})
    with cpu_judge(slow, Family.load(KERNELS / "tiny")) as executor:
        executor.submit(BuildJob(variant=tiny(), conditions=CONDITIONS))
        until = time.monotonic() + 60
        while not using(tmp_path):
            assert time.monotonic() < until
            executor.wait(0.05)
    assert gone(tmp_path)


# A driver of its own ----------------------------------------------------------------------------------------------


def driver(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """Another process as driver, whose jobs all use the folder."""
    environment = {**os.environ, "TMPDIR": str(folder), "PYTHONPATH": str(ROOT), config.CACHE: os.environ[config.CACHE]}
    command = [sys.executable, "-m", *arguments]
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)


def test_only_the_zygote_forgets_its_exit_code() -> None:
    """It leaves without tearing down what it imported; no other process that imports all of this may do so."""
    ended = subprocess.run([sys.executable, "-c", "import autotuner.run.zygote; raise SystemExit(3)"])
    assert ended.returncode == 3


@pytest.mark.slow
def test_the_zygote_imports_once_for_all_jobs(tmp_path: Path) -> None:
    """torch is there before the fork; no job adds to the driver's standard output."""
    process = driver(tmp_path, zygote_witness.__name__)
    said = json.loads(process.communicate(timeout=120)[0])
    first, second = said["jobs"]
    assert process.returncode == 0
    assert first["pid"] != second["pid"]
    for each in (first, second):
        assert each["imported_in"] == each["parent"] == first["parent"]
        assert each["imported_in"] not in (each["pid"], said["driver"])
        assert each["session"] == each["pid"]
        assert each["torch"]
        assert each["threads"] == 1
    assert gone(tmp_path)


@pytest.mark.slow
def test_what_variants_print_never_reaches_the_drivers_output_and_a_killed_driver_leaves_nobody(tmp_path: Path) -> None:
    """No worker, and nothing that a variant has started in a process group of its own."""
    process = driver(tmp_path, conduct_driver.__name__, "prints", "last_words", "leaves_a_child_and_hangs")
    assert [process.stdout.readline() for _ in range(2)] == ["crashed\n", "crashed\n"]
    wait_for(lambda: any(map(leads_a_group_in_anothers_session, using(tmp_path))))
    process.kill()
    process.wait()
    assert gone(tmp_path)
    assert process.communicate()[0] == ""


def leads_a_group_in_anothers_session(pid: int) -> bool:
    with contextlib.suppress(OSError):
        forked = b"forkserver" in Path(f"/proc/{pid}/cmdline").read_bytes()  # a compiler leads one as well
        return forked and os.getpgid(pid) == pid != os.getsid(pid)
    return False


def test_a_process_that_goes_while_it_is_looked_at_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every worker's end reads the list of the living, and others come and go meanwhile."""
    mine = os.getsid(0)
    assert os.getpid() in job_process._session(mine)

    def vanish(_: int) -> int:
        raise ProcessLookupError

    monkeypatch.setattr(os, "getsid", vanish)
    assert not list(job_process._session(mine))


SEMAPHORE = """
import multiprocessing, os, tempfile
from multiprocessing import resource_tracker
from autotuner.run import inside

if __name__ == "__main__":
    resource_tracker.ensure_running()
    read, write = os.pipe()
    if os.fork() == 0:
        inside._isolate(write)
        files = [tempfile.TemporaryFile() for _ in range(resource_tracker._resource_tracker._fd or 16)]
        multiprocessing.get_context("spawn").Lock()
        os.write(write, str([os.fstat(each.fileno()).st_size for each in files]).encode())
        os._exit(0)
    os.close(write)
    print(os.read(read, 1000).decode())
"""


def test_who_makes_a_semaphore_in_such_a_process_writes_to_no_file_of_another() -> None:
    done = subprocess.run([sys.executable, "-c", SEMAPHORE], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)) == {0}
