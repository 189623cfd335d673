"""One process that does jobs, as the driver sees it: gives it jobs, hears its steps and answers, ends it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import signal
import time
from collections import deque
from collections.abc import Iterator
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import NamedTuple

from autotuner.run.jobs import AnyJob
from autotuner.run.messages import Inbox, Message
from autotuner.run.process import Role, log_of, serve

STDERR_TAIL = 2000
REAP_S = 30.0
"""A killed process may take long to go: one whose kernel hangs on a GPU stays until that is taken down."""
STAGES = ("build", "check", "measure", "soak", "sanitize", "calibrate")
CHECK = re.compile(r"G\d\.\w+")
"""How the gate announces a check; the steps within one say more."""


class Submitted(NamedTuple):
    """A job as it was submitted."""

    number: int
    job: AnyJob
    lane: int | None
    """Whose device it is for; None for a build."""
    pickled: bytes
    """The job as a process is given it."""

    @property
    def wants_fresh(self) -> bool:
        """Whether it must have a process that does no other."""
        return bool(getattr(self.job, "fresh", False))


class Worker:
    """A process forked from the zygote. It does what it is given in that order: the first job runs, and the next is in
    hand, so that the process goes on with it at once. Without a job it is idle."""

    lane: int | None
    """Whose device it has; None for a builder."""
    given: deque[Submitted]
    """What has not ended: the running job and the one in hand."""
    step: str
    stage: str
    """The last of STAGES that began in the running job; "start" before the first."""
    since: float
    """When the step began, on the monotonic clock."""
    checks: dict[str, float]
    """The checks that began in the running job, and when."""
    gone_by: float
    """Set by `end`: when the process counts as gone even if it is not."""

    def __init__(self, context: ForkServerContext, role: Role, lane: int | None, logs: Path) -> None:
        job_reader, self._jobs = context.Pipe(duplex=False)
        self._replies, reply_writer = context.Pipe(duplex=False)
        key = secrets.token_bytes(16)
        self._process = context.Process(target=serve, args=(job_reader, reply_writer, key, logs, role), daemon=True)
        self._process.start()
        job_reader.close()
        reply_writer.close()
        self._inbox, self._logs = Inbox(self._replies, key), logs
        self._role, self.lane, self._ended = role, lane, 0
        self.given = deque()

    @property
    def number(self) -> int:
        """Of the running job."""
        return self.given[0].number

    @property
    def job(self) -> AnyJob:
        """The running job."""
        return self.given[0].job

    def may_have_in_hand(self, job: Submitted) -> bool:
        """Whether the job may follow the running one in this process: neither wants a fresh one, and nothing else is
        in hand. Giving it must not wait for the process, so the pipe must have room for both, should the process have
        read neither; half of it, as not every page gets full."""
        both = (*self.given, job)
        if len(both) != 2 or any(each.wants_fresh for each in both) or self._ended + 1 >= self._role.jobs:
            return False
        return sum(len(each.pickled) for each in both) <= fcntl.fcntl(self._jobs, fcntl.F_GETPIPE_SZ) // 2

    def give(self, job: Submitted) -> None:
        """Gives the process another job. If it is dead, `answer` will say so."""
        self.given.append(job)
        if len(self.given) == 1:
            self._begin()
        with contextlib.suppress(OSError):
            self._jobs.send((job.number, job.pickled))

    def finish(self) -> None:
        """The running job has ended, and the one in hand runs."""
        log_of(self._logs, self.given.popleft().number).unlink(missing_ok=True)
        self._ended += 1
        if self.given:
            self._begin()

    def _begin(self) -> None:
        """The clock of the first job starts: now, however long it was in hand."""
        self.checks = {}
        self._note("start")

    def answer(self) -> Message | None:
        """How the running job ended, once it has; steps on the way are noted.

        Raises EOFError or OSError when no more will come, and ValueError or others when something else came.
        """
        while (message := self._inbox.read()) is not None:
            if message.number != self.number:
                raise ValueError(f"an answer to job {message.number}")
            if message.step is None:
                return message
            self._note(message.step)
        return None

    def _note(self, step: str) -> None:
        self.step, self.since = step, time.monotonic()
        first = step.split(" ")[0]
        if first in (*STAGES, "start"):
            self.stage = first
        if CHECK.fullmatch(step):
            self.checks[step] = self.since

    @property
    def signs(self) -> tuple[Connection, int]:
        """What to wait for: one of them is ready when the process has said something or ended."""
        return self._replies, self._process.sentinel

    @property
    def end_sign(self) -> int:
        """What to wait for after `end`: it is ready when the process has gone."""
        return self._process.sentinel

    @property
    def is_alive(self) -> bool:
        return self._process.is_alive()

    @property
    def is_fresh(self) -> bool:
        """Whether the running job is its first."""
        return self._ended == 0

    @property
    def can_go_on(self) -> bool:
        """Whether the process, a job having ended well, may do another: the one in hand, which it may be at already,
        or else, being alive and silent since, any."""
        return bool(self.given) or (self._ended < self._role.jobs and self.is_alive and self._inbox.is_empty)

    def exit_code(self) -> int | None:
        """How the process ended; None if it has not."""
        self._process.join(2)
        return self._process.exitcode

    def tail(self) -> str:
        """The end of what was printed during the running job."""
        with contextlib.suppress(OSError):
            return log_of(self._logs, self.number).read_bytes()[-STDERR_TAIL:].decode(errors="replace").strip()
        return ""

    def end(self) -> None:
        """Kills the process with everything in its group and its session; does not wait for it to go."""
        pid = self._process.pid
        assert pid is not None
        for kill in (os.killpg, os.kill):  # the group outlives its leader; before setsid there is only the process
            with contextlib.suppress(ProcessLookupError, PermissionError):
                kill(pid, signal.SIGKILL)
        _kill_session(pid)
        self.gone_by = time.monotonic() + REAP_S
        self._jobs.close()
        self._replies.close()
        for job in self.given:
            log_of(self._logs, job.number).unlink(missing_ok=True)

    @property
    def has_gone(self) -> bool:
        """Of a process that was ended: whether it is no more, or takes longer than any should."""
        return not self.is_alive or time.monotonic() >= self.gone_by

    def see_off(self) -> None:
        """Waits until the ended process has gone."""
        self._process.join(max(0.0, self.gone_by - time.monotonic()))


def _kill_session(leader: int) -> None:
    """Kills what the process started in other groups of its session: a compiler, a child of a variant."""
    killed = {leader}
    for _ in range(5):  # one may start another meanwhile
        members = set(_session(leader)) - killed
        if not members:
            return
        for pid in members:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        killed |= members


def _session(leader: int) -> Iterator[int]:
    """Every process of that session; nothing where there is no /proc.

    Each is asked by a system call: to read a file for each of a large machine's thousand takes the driver 20 ms.
    """
    with contextlib.suppress(FileNotFoundError), os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdecimal() and _leader_of(int(entry.name)) == leader:
                yield int(entry.name)


def _leader_of(pid: int) -> int | None:
    """The number of the process's session; None if it has gone."""
    try:
        return os.getsid(pid)
    except OSError:
        return None
