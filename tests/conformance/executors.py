"""What every executor must do. A test module inherits Contract and says what makes its executor.

The backends here are asked by their variant: IMPL says what happens to the job.
"""

import os
import select
import signal
import stat
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest

from autotuner.race.arms import Audited, Tracks
from autotuner.run.executor import Executor
from autotuner.run.jobs import BuildJob, Built, CalibrationJob, JudgeJob, RaceJob
from autotuner.run.line import Passed
from autotuner.run.messages import Message
from autotuner.values.conditions import Conditions
from autotuner.values.errors import DiskFullError, OracleError
from autotuner.values.gate_report import GateReport
from autotuner.values.outcome import Artifact, Calibration, Heat, Say
from autotuner.values.variant import Value, Variant
from autotuner.values.verdict import Fault, Verdict
from tests.helpers.ends import comes_of, next_of, outcome
from tests.helpers.fake_line import FakeArm, FakeLine, FakeTrack, Truth
from tests.helpers.judging import PROBLEM

CONDITIONS = Conditions(problems=(PROBLEM,), seeds=(1, 2, 3, 4), baselines=("fake",), min_blocks=2, max_blocks=2)


class PlayBackend(FakeLine):
    """What IMPL asks for happens in the build of a variant and again in its gate; what is not in ACTS is right."""

    def __init__(self) -> None:
        super().__init__(lambda variant: Truth(us=float(variant.parameters.get("US", 50))))

    def build(self, variant: Variant, conditions: Conditions) -> Artifact | Fault:
        fault = act(variant)
        return fault or super().build(variant, conditions)

    def check(self, artifact: Artifact, conditions: Conditions, say: Say, passed: Passed | None = None) -> GateReport:
        if artifact.variant.impl in ("works", "dies_in_audit"):
            say(f"G1.{artifact.variant.parameters['NAME']}")
        fault = act(artifact.variant)
        if fault is not None:
            return GateReport(artifact=artifact.digest, required=(), checks=(), fault=fault)
        return super().check(artifact, conditions, say, passed)

    def tracks(self, conditions: Conditions) -> Tracks:
        return [PlayTrack(problem, self._device, self._truth, self._baseline_us) for problem in conditions.problems]


class PlayTrack(FakeTrack):
    """What IMPL asks of a race or of the audit happens when the variant is loaded for it."""

    def variant(self, artifact: Artifact, again: bool = False) -> FakeArm:
        match artifact.variant.impl:
            case "dies_in_race":
                os.kill(os.getpid(), signal.SIGKILL)
            case "raises_in_race":
                raise ZeroDivisionError
        return super().variant(artifact, again)

    def audit(self, artifact: Artifact, baseline: str) -> Audited:
        if artifact.variant.impl == "dies_in_audit":
            _meet(Path(str(artifact.variant.parameters["FOLDER"])), "the audit", 2)
            os.abort()
        return super().audit(artifact, baseline)


def act(variant: Variant) -> Fault | None:
    """Does what IMPL says."""
    value = variant.parameters
    match variant.impl:
        case "input":
            raise DiskFullError("no room; make some")
        case "oracle":
            raise OracleError("the reference is wrong")
        case "raises":
            raise ZeroDivisionError
        case "sleep":
            time.sleep(int(value["MS"]) / 1000)
        case "meets":
            _meet(Path(str(value["FOLDER"])), str(value["NAME"]), int(value["COUNT"]))
        case "alone":
            _note_beginning_and_end(Path(str(value["FOLDER"])) / "log", str(value["NAME"]))
        case "dies":
            sys.stderr.write(f"the last words of {value['NAME']}\n")
            sys.stderr.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        case "works":
            _work(Path(str(value["FOLDER"])), str(value["NAME"]), int(value.get("MS", 50)) / 1000)
            return act(variant.model_copy(update={"impl": str(value["THEN"])})) if "THEN" in value else None
        case "late" | "accused" | "uncaptured" | "slow_to_build":
            return _at_first(variant.impl, Path(str(value["FOLDER"])), int(value["TIMES"]))
        case "kills_the_server":
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(20)
        case "aborts":
            os.abort()
        case "babbles":
            threading.Timer(0.1, _write_everywhere).start()
        case "babbles_now":
            _write_everywhere()
        case "robs":
            _read_everywhere()
        case "corrupts":
            Message.spoils = False  # type: ignore[assignment, method-assign]
            return Fault(verdict=Verdict.CORRUPTING, code="told", detail="and its process goes on")
        case "tells":
            what = {"pid": str(os.getpid()), "devices": os.environ.get("CUDA_VISIBLE_DEVICES", "all")}
            sys.stderr.write("some noise\n")
            return Fault(verdict=Verdict(str(value["AS"])), code="told", detail=what[str(value["WHAT"])])
    return None


def _at_first(what: str, folder: Path, times: int) -> Fault | None:
    """So often as said: the work takes a minute, or a fault that rests on time is found."""
    _work(folder, what, 0.05)
    if len(notes(folder, "begin")) > times:
        return None
    if what == "late":
        time.sleep(60)
    if what == "slow_to_build":
        return Fault(verdict=Verdict.BUILD_TIMEOUT, code="build.timeout", detail="the compiler was killed")
    if what == "uncaptured":
        return Fault(verdict=Verdict.LAUNCH_FAILED, code="measure.capture", detail="a capture had failed before")
    return Fault(verdict=Verdict.IMPOSSIBLE, code="measure.memory", detail="it took longer on new inputs")


def _meet(folder: Path, name: str, count: int) -> None:
    """Returns when `count` jobs are in here at the same time."""
    (folder / name).touch()
    until = time.monotonic() + 20
    while len(list(folder.iterdir())) < count:
        assert time.monotonic() < until, "the others did not come"
        time.sleep(0.005)


def _note_beginning_and_end(log: Path, name: str) -> None:
    with log.open("a") as file:
        file.write(f"begin {name}\n")
        file.flush()
        time.sleep(0.05)
        file.write(f"end {name}\n")


def crowds(folder: Path) -> list[set[str]]:
    """Which of the jobs that noted their beginning and end there ran together, from each beginning and end to the
    next."""
    running: set[str] = set()
    found = []
    for line in (folder / "log").read_text().splitlines():
        what, name = line.split()
        running = running | {name} if what == "begin" else running - {name}
        found.append(running)
    assert not running
    return found


class Note(NamedTuple):
    """What a job noted of its work."""

    name: str
    what: str
    pid: int
    at: float
    """On the monotonic clock, which is one for all processes."""


def _work(folder: Path, name: str, seconds: float) -> None:
    """Notes its beginning and its end, and says them: the beginning at once, the end into the buffer."""
    sys.stdout.write(f"{name} begins\n")
    sys.stdout.flush()
    with (folder / "notes").open("a", buffering=1) as file:
        file.write(f"{name} begin {os.getpid()} {time.monotonic()}\n")
        time.sleep(seconds)
        file.write(f"{name} end {os.getpid()} {time.monotonic()}\n")
    sys.stdout.write(f"{name} ends\n")


def notes(folder: Path, what: str = "") -> list[Note]:
    """What the jobs have noted there by now, all or only of that kind, in that order."""
    with suppress(FileNotFoundError):
        lines = [line.split() for line in (folder / "notes").read_text().splitlines()]
        return [Note(name, kind, int(pid), float(at)) for name, kind, pid, at in lines if what in ("", kind)]
    return []


def _read_everywhere() -> None:
    """Takes what is in the process's pipes, or comes within seconds."""
    pipes = [file for file in range(3, 100) if _is_pipe(file)]
    for file in select.select(pipes, [], [], 5)[0]:
        os.read(file, 1 << 16)


def _is_pipe(file: int) -> bool:
    with suppress(OSError):
        return stat.S_ISFIFO(os.fstat(file).st_mode)
    return False


def _write_everywhere() -> None:
    for file in range(3, 100):
        with suppress(OSError):
            os.write(file, b"\0\0\0\4what")


def play() -> PlayBackend:
    return PlayBackend()


def variant(impl: str = "right", **parameters: Value) -> Variant:
    return Variant(family="play", backend="cpu", impl=impl, parameters=parameters)


def race_job(*impls: str, fresh: bool = False) -> RaceJob:
    """A race of variants, judged before."""
    artifacts = tuple(judge_job(impl).built.artifact for impl in impls)
    return RaceJob(artifacts=artifacts, conditions=CONDITIONS, blocks=3, fresh=fresh)


def build_job(impl: str = "right", **parameters: Value) -> BuildJob:
    return BuildJob(variant=variant(impl, **parameters), conditions=CONDITIONS)


def judge_job(impl: str = "right", **parameters: Value) -> JudgeJob:
    artifact = FakeLine(lambda _: Truth()).build(variant(impl, **parameters), CONDITIONS)
    assert isinstance(artifact, Artifact)
    return JudgeJob(built=Built(artifact=artifact, seconds=0.25), conditions=CONDITIONS)


def fresh_job(impl: str = "right", **parameters: Value) -> JudgeJob:
    """A judging that wants a process, or a line, of its own."""
    return judge_job(impl, **parameters).model_copy(update={"fresh": True})


def told(executor: Executor, what: str = "pid", lane: int = 0) -> str:
    """What the process of that lane says of itself."""
    return comes_of(executor, judge_job("tells", AS="incorrect", WHAT=what), lane).fault.detail


class Contract:
    """Tests that an executor passes; a subclass defines `make`, an executor whose backend is `play()`."""

    def make(self) -> Executor:
        raise NotImplementedError

    @pytest.fixture
    def executor(self) -> Iterator[Executor]:
        with closing(self.make()) as made:
            yield made

    def test_nothing_submitted_is_nothing_to_wait_for(self, executor: Executor) -> None:
        assert executor.width >= executor.lanes >= 1
        assert executor.builders >= 1
        assert executor.wait() is None
        assert executor.wait(0.0) is None

    def test_a_job_comes_back_under_its_number(self, executor: Executor) -> None:
        submitted = judge_job(US=25)
        number = executor.submit(submitted)
        done = next_of(executor)
        assert done[0] == number
        result = outcome(done)
        assert result.variant == submitted.variant
        assert result.verdict == Verdict.MEASURED
        assert result.artifact == submitted.built.artifact
        assert list(result.seconds) == ["build", "check", "measure", "audit", "soak"]
        assert result.seconds["build"] == 0.25
        assert executor.wait() is None

    def test_a_build_gives_what_can_be_judged_or_an_outcome(self, executor: Executor) -> None:
        before = datetime.now(UTC)
        executor.submit(build_job("sleep", MS=30))
        done = next_of(executor)
        assert isinstance(done[1], Built)
        assert done[1].artifact.variant == variant("sleep", MS=30)
        assert done[1].seconds >= 0.03
        assert done[1].began is not None
        assert before <= done[1].began <= datetime.now(UTC)
        refused = comes_of(executor, build_job("tells", AS="build_failed", WHAT="pid"))
        assert refused.verdict == Verdict.BUILD_FAILED
        assert refused.artifact is None
        assert list(refused.seconds) == ["build"]
        assert refused.build_began is not None
        assert done[1].began < refused.build_began <= datetime.now(UTC)

    def test_several_jobs_of_the_device_come_back_in_order_and_none_twice(self, executor: Executor) -> None:
        jobs = {executor.submit(each): each for each in (judge_job(US=us) for us in (10, 20, 30, 40))}
        assert len(jobs) == 4
        for number, submitted in jobs.items():
            done = next_of(executor)
            assert done[0] == number
            assert outcome(done).variant == submitted.variant
        assert executor.wait() is None

    def test_several_builds_come_back_each_once(self, executor: Executor) -> None:
        jobs = {executor.submit(each): each for each in (build_job(US=us) for us in (10, 20, 30, 40))}
        for _ in range(4):
            done = next_of(executor)
            assert isinstance(done[1], Built)
            assert done[1].artifact.variant == jobs.pop(done[0]).variant
        assert executor.wait() is None

    def test_every_lane_takes_jobs_and_there_is_no_other(self, executor: Executor) -> None:
        jobs = {executor.submit(judge_job(), lane) for lane in range(executor.lanes)}
        for lane in (-1, executor.lanes):
            with pytest.raises(ValueError, match="no lane"):
                executor.submit(judge_job(), lane)
        while jobs:
            done = next_of(executor)
            jobs.remove(done[0])
            assert outcome(done).verdict == Verdict.MEASURED
        assert executor.wait() is None

    def test_a_job_that_wants_a_fresh_process_is_done_like_others(self, executor: Executor) -> None:
        for job in (judge_job(), fresh_job(), judge_job()):
            assert comes_of(executor, job).verdict == Verdict.MEASURED

    def test_other_kinds_of_jobs_have_their_own_results(self, executor: Executor) -> None:
        executor.submit(CalibrationJob(conditions=CONDITIONS))
        done = next_of(executor)
        assert isinstance(done[1], Calibration)
        assert done[1].baselines == ("fake",)
        for fresh in (False, True):
            executor.submit(race_job("right", "right", fresh=fresh))
            done = next_of(executor)
            assert isinstance(done[1], Heat)
            assert len(done[1].us) == 2

    def test_our_errors_are_raised_by_wait_and_the_next_job_goes_on(self, executor: Executor) -> None:
        for impl, error in (("input", DiskFullError), ("oracle", OracleError), ("input", DiskFullError)):
            executor.submit(build_job(impl))
            with pytest.raises(error, match=r"no room; make some|the reference is wrong"):
                executor.wait(60)
            assert comes_of(executor, judge_job()).verdict == Verdict.MEASURED
        assert executor.wait() is None

    def test_close_ends_what_waits_and_may_be_called_twice(self) -> None:
        executor = self.make()
        executor.submit(judge_job("sleep", MS=20))
        executor.submit(judge_job())
        executor.submit(build_job())
        executor.close()
        assert executor.wait(0.0) is None
        executor.close()
