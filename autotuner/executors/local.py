"""Jobs in processes of their own on this machine, forked from a zygote that has imported torch once.

A variant may crash, hang, exit, print, or spoil its process in any way: that costs this process, and the job ends with
a verdict. The zygote is multiprocessing's fork server; it never runs a variant and starts no threads.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import pickle
import resource
import secrets
import signal
import tempfile
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import NamedTuple

from pydantic import Field

from autotuner.backends import Backend
from autotuner.errors import AutotunerError, InfrastructureError, InputError, OracleError
from autotuner.evaluate import AnyJob, Job, Result, perform
from autotuner.model import Model
from autotuner.outcome import Fault, Outcome, Verdict

BackendFactory = Callable[[], Backend]
STDERR_TAIL = 2000
LARGEST_MESSAGE = 1 << 26
HIGHEST_FILE = 1 << 16


class Deadlines(Model):
    """Seconds that one step of a job may take before its process is killed."""

    start: float = 60
    build: float = 330
    check: float = Field(default=30, description="one step of the gate: a case or an invariant")
    measure: float = 120
    calibrate: float = 300

    def of(self, stage: str) -> float:
        """The deadline of a stage, which is the first word of what a job says."""
        known = {"start": self.start, "build": self.build, "measure": self.measure, "calibrate": self.calibrate}
        return known.get(stage, self.check)


class _Message(NamedTuple):
    """What a job's process sends: the step it begins, or how it ended."""

    step: str | None = None
    result: Result | None = None
    error: AutotunerError | None = None
    failure: str | None = None


class _Inbox:
    """The messages of one job's process. A variant can write anything into any open file: reading never waits, and
    nothing is unpickled that does not begin with the job's key."""

    def __init__(self, pipe: Connection, key: bytes) -> None:
        os.set_blocking(pipe.fileno(), False)
        self._pipe, self._key = pipe, key
        self._bytes = bytearray()

    def read(self) -> _Message | None:
        """The next message; None when there is none yet. Raises EOFError at the end, ValueError for anything else."""
        while True:
            frame = self._frame()
            if frame is not None:
                if not frame.startswith(self._key):
                    raise ValueError(f"{len(frame)} bytes that are no message")
                message = pickle.loads(frame[len(self._key) :])
                assert isinstance(message, _Message)
                return message
            try:
                more = os.read(self._pipe.fileno(), 1 << 16)
            except BlockingIOError:
                return None
            if not more:
                raise EOFError
            self._bytes += more

    def _frame(self) -> bytes | None:
        """The next whole frame as Connection.send_bytes writes it: its length in four bytes, then so many bytes."""
        if len(self._bytes) < 4:
            return None
        size = int.from_bytes(self._bytes[:4], "big", signed=True)
        if not 0 <= size <= LARGEST_MESSAGE:
            raise ValueError(f"a message of {size} bytes")
        if len(self._bytes) < 4 + size:
            return None
        frame = bytes(self._bytes[4 : 4 + size])
        del self._bytes[: 4 + size]
        return frame


class _Running(NamedTuple):
    number: int
    job: AnyJob
    process: ForkServerProcess
    pipe: Connection
    inbox: _Inbox
    log: Path


class LocalExecutor:
    """Runs one job at a time, each in a fresh process. `factory` makes the backend there and must be picklable."""

    def __init__(
        self, factory: BackendFactory, preload: tuple[str, ...] = (), deadlines: Deadlines | None = None
    ) -> None:
        self._factory = factory
        self._deadlines = deadlines or Deadlines()
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["autotuner.executors.local", *preload])
        self._waiting: deque[tuple[int, AnyJob]] = deque()
        self._running: _Running | None = None
        self._step, self._stage, self._since = "start", "start", 0.0
        self._next = 0
        self._logs = tempfile.TemporaryDirectory(prefix="autotuner-logs-")

    def submit(self, job: AnyJob) -> int:
        number = self._next
        self._next += 1
        self._waiting.append((number, job))
        self._start_next()
        return number

    def wait(self, timeout: float | None = None) -> tuple[int, Result] | None:
        until = time.monotonic() + timeout if timeout is not None else float("inf")
        while self._running is not None:
            running = self._running
            deadline = self._since + self._deadlines.of(self._stage)
            wait([running.pipe, running.process.sentinel], max(0.0, min(deadline, until) - time.monotonic()))
            result = self._progress(running, deadline)
            if result is not None:
                return running.number, result
            if time.monotonic() >= until:
                return None
        return None

    def close(self) -> None:
        self._waiting.clear()
        if self._running is not None:
            self._end(self._running)
        self._logs.cleanup()

    # ------------------------------------------------------------------------------------------------------------

    def _start_next(self) -> None:
        if self._running is not None or not self._waiting:
            return
        number, job = self._waiting.popleft()
        ours, theirs = self._context.Pipe(duplex=False)
        log = Path(self._logs.name) / f"{number}.log"
        key = secrets.token_bytes(16)
        process = self._context.Process(target=_serve, args=(theirs, key, str(log), self._factory, job), daemon=True)
        process.start()
        theirs.close()
        self._running = _Running(number, job, process, ours, _Inbox(ours, key), log)
        self._note("start")

    def _note(self, step: str) -> None:
        self._step, self._since = step, time.monotonic()
        if step.split(" ")[0] in ("build", "check", "measure", "soak", "calibrate"):
            self._stage = step.split(" ")[0]
        elif step == "start":
            self._stage = "start"

    def _progress(self, running: _Running, deadline: float) -> Result | None:
        """Reads what the job's process sent; the job's result once there is one."""
        alive = running.process.is_alive()  # asked first: what was sent before the end is read
        while True:
            try:
                message = running.inbox.read()
            except (EOFError, OSError):
                return self._died(running)
            except Exception as error:  # not written by our code
                detail = f"{error} came through the pipe in {self._step}"
                return self._finish(running, self._fault(running, Verdict.CRASHED, "process.garbage", detail))
            if message is None:
                break
            if message.step is not None:
                self._note(message.step)
                continue
            if message.error is not None:
                self._end(running)
                raise message.error
            if message.failure is not None:
                return self._failed(running, message.failure)
            return self._finish(running, message.result)
        if not alive:
            return self._died(running)
        if time.monotonic() >= deadline:
            detail = f"no end after {self._deadlines.of(self._stage):.0f} s in {self._step}; the process was killed"
            return self._finish(running, self._fault(running, Verdict.HUNG, "process.deadline", detail))
        return None

    def _died(self, running: _Running) -> Result:
        """The process ended, or closed its pipe, without a result."""
        running.process.join(2)
        code = running.process.exitcode
        if code is not None and code < 0:
            name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
            fault = self._fault(running, Verdict.CRASHED, "process.signal", f"signal {-code} ({name}) in {self._step}")
        else:
            how = "its pipe was closed" if code is None else f"it exited with status {code}"
            fault = self._fault(running, Verdict.CRASHED, "process.exit", f"{how} in {self._step}")
        return self._finish(running, fault)

    def _fault(self, running: _Running, verdict: Verdict, code: str, detail: str) -> Result:
        """The ending of a job whose process was lost. Before a variant's code was loaded, it is not the variant's."""
        if self._stage in ("start", "build", "calibrate") or not isinstance(running.job, Job):
            return self._failed(running, detail)
        fault = Fault(verdict=verdict, code=code, detail=detail, case=self._step)
        return Outcome(variant=running.job.variant, verdict=verdict, fault=fault, stderr_tail=self._tail(running))

    def _failed(self, running: _Running, why: str) -> Result:
        """Our own machinery failed: an infra_error for a variant's job, an exception for any other."""
        tail = self._tail(running)
        if not isinstance(running.job, Job):
            self._end(running)
            raise InfrastructureError(f"{why}; {tail}" if tail else why)
        fault = Fault(verdict=Verdict.INFRA_ERROR, code="process.lost", detail=why)
        outcome = Outcome(variant=running.job.variant, verdict=Verdict.INFRA_ERROR, fault=fault, stderr_tail=tail)
        return self._finish(running, outcome)

    def _tail(self, running: _Running) -> str:
        with contextlib.suppress(OSError):
            return running.log.read_bytes()[-STDERR_TAIL:].decode(errors="replace").strip()
        return ""

    def _finish(self, running: _Running, result: Result | None) -> Result:
        assert result is not None
        self._end(running)
        return result

    def _end(self, running: _Running) -> None:
        """Kills the job's process with everything in its group and its session, and starts the next job."""
        if self._running is not running:
            return
        pid = running.process.pid
        for kill in (os.killpg, os.kill):  # the group outlives its leader; before setsid there is only the process
            with contextlib.suppress(ProcessLookupError, PermissionError, TypeError):
                kill(pid, signal.SIGKILL)  # type: ignore[arg-type]
        if pid is not None:
            _kill_session(pid)
        running.process.join(5)
        running.pipe.close()
        running.log.unlink(missing_ok=True)
        self._running = None
        self._start_next()


def _kill_session(leader: int) -> None:
    """Kills what the job's process started in other groups of its session: a compiler, a child of a variant."""
    for _ in range(5):  # one may start another meanwhile
        members = [pid for pid, session in _sessions() if session == leader]
        if not members:
            return
        for pid in members:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def _sessions() -> Iterator[tuple[int, int]]:
    """Number and session of every living process; nothing where there is no /proc."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, _, session, *_ = stat.read_text(errors="replace").rsplit(")", 1)[1].split()
            if state not in "ZX":
                yield int(stat.parent.name), int(session)


# In the job's process -----------------------------------------------------------------------------------------------


def _serve(pipe: Connection, key: bytes, log: str, factory: BackendFactory, job: AnyJob) -> None:
    """Does one job and sends what happens through the pipe."""
    _isolate(log, keep=pipe.fileno())

    def send(message: _Message) -> None:
        pipe.send_bytes(key + pickle.dumps(message))

    def say(step: str) -> None:
        send(_Message(step=step))

    try:
        message = _Message(result=perform(job, factory(), say))
    except (InputError, OracleError) as error:
        message = _Message(error=error)
    except BaseException as error:
        traceback.print_exc()
        message = _Message(failure=f"{type(error).__name__}: {error}")
    send(message)
    pipe.close()
    os._exit(0)  # what a variant left behind (threads, exit handlers) must not run


def _isolate(log: str, keep: int) -> None:
    """A session of its own; output to a file; no core dumps; first to go when memory runs out; dies with its parent.

    Every other file is closed: one of them keeps the zygote alive, and a variant could write to it.
    """
    os.setsid()
    with contextlib.suppress(OSError, AttributeError):
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.closerange(3, keep)
    os.closerange(keep + 1, HIGHEST_FILE)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
