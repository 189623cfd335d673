"""One process that does jobs, as the driver sees it: gives it jobs, hears its steps and answers, ends it."""

import contextlib
import fcntl
import os
import re
import secrets
import signal
import socket
import time
from collections import deque
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

from autotuner.race.third_clock import ThirdClock
from autotuner.run.fork_server import ForkServer, descendants_of, end_adopted, is_well, kill, server_pid
from autotuner.run.inside import Role, log_of, serve
from autotuner.run.jobs import AnyJob, JudgeJob, RaceJob
from autotuner.run.messages import MOST_STEPS, Inbox, Message, misfit
from autotuner.run.scratch import remove
from autotuner.values.files import end_of

STDERR_TAIL = 2000
REAP_S = 30.0
"""A killed process may take long to go: one whose kernel hangs on a GPU stays until that is taken down."""
NO_STATUS = 255
"""The exit status of a process whose server said nothing of its end; a process may have it by itself."""
DYING_S = 2.0
"""Seconds that a killed server may take to be dead: it has torch to tear down."""
STAGES = ("build", "check", "measure", "audit", "soak", "finalist", "many", "memory", "sanitize", "calibrate")
CHECK = re.compile(r"G\d\.\w+")
"""How the gate announces a check; the steps within one say more."""


class Submitted(NamedTuple):
    """A job as it was submitted."""

    number: int
    job: AnyJob
    lane: int | None
    """Whose device it is for; None for a build."""
    order: bytes
    """The job as a process is given it: its number, and its JSON."""
    losses: int = 0
    """How often it was lost in a way that need not be its variant's doing; it is tried once more then."""
    alone: bool = False
    """Nothing else may run beside it: the fork server was lost while it ran, among others perhaps, or it is the second
    look."""
    second_look: bool = False
    """A fault of its variant that rests on time was seen once."""

    @property
    def wants_fresh(self) -> bool:
        """Whether it must have a process that does no other."""
        interpreted = isinstance(self.job, JudgeJob) and self.job.built.artifact.interpreted
        return bool(getattr(self.job, "fresh", False)) or interpreted or self.losses > 0 or self.second_look

    @property
    def runs_variants(self) -> bool:
        """Whether the code of variants is loaded for it: then nothing that comes from its process is believed."""
        return isinstance(self.job, JudgeJob | RaceJob)


class JobProcess:
    """A process forked from the zygote. It does what it is given in that order: the first job runs, and the next is in
    hand, so that the process goes on with it at once. Without a job it is idle."""

    lane: int | None
    """Whose device it has; None for a builder."""
    clock: ThirdClock
    given: deque[Submitted]
    """What has not ended: the running job and the one in hand."""
    step: str
    stage: str
    """The last of STAGES that began in the running job; "start" before the first."""
    since: float
    """When the step began, on the monotonic clock."""
    heard: set[str]
    """The first words of the steps that began in the running job."""
    checks: dict[str, float]
    """The seconds of the checks that ended in the running job."""
    check: str | None
    """The one under way there; None outside of the gate, such as in a race."""
    check_since: float
    """When the last one began."""
    gone_by: float
    """Set by `end`: when the process counts as gone even if it is not."""

    def __init__(self, server: ForkServer, role: Role, lane: int | None, folder: Path) -> None:
        """`folder`: where the process may write. Raises InfrastructureError when no process can be started."""
        job_reader, self._jobs = server.context.Pipe(duplex=False)
        self._replies, reply_writer = server.context.Pipe(duplex=False)
        key = secrets.token_bytes(16)
        stamps, stamp_writer = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        arguments = (job_reader, reply_writer, stamp_writer, key, folder, role)
        self._process = server.context.Process(target=serve, args=arguments, daemon=True)
        try:
            self._server = server.start(self._process)
        except BaseException:
            stamps.close()
            stamp_writer.close()
            raise
        job_reader.close()
        reply_writer.close()
        stamp_writer.close()
        self.clock = ThirdClock(stamps)
        self._inbox, self._folder = Inbox(self._replies, key), folder
        self._role, self.lane, self._ended = role, lane, 0
        self.given = deque()
        self._has_run_variants = False

    @property
    def number(self) -> int:
        """The running job's."""
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
        return sum(len(each.order) for each in both) <= fcntl.fcntl(self._jobs, fcntl.F_GETPIPE_SZ) // 2

    def give(self, job: Submitted) -> None:
        """Gives the process another job. If it is dead, `answer` will say so."""
        self.given.append(job)
        self._has_run_variants |= job.runs_variants
        if len(self.given) == 1:
            self._begin()
        with contextlib.suppress(OSError):
            self._jobs.send_bytes(job.order)

    def finish(self) -> None:
        """The running job has ended, and the one in hand runs."""
        with contextlib.suppress(OSError):  # a variant may have made a folder of it
            log_of(self._folder, self.given.popleft().number).unlink()
        self._ended += 1
        self.clock.forget()
        if self.given:
            self._begin()

    def _begin(self) -> None:
        """The clock of the first job starts: now, however long it was in hand."""
        self.checks, self.check, self.heard, self._steps = {}, None, set(), 0
        self._note("start")

    def answer(self) -> Message | None:
        """How the running job ended, once it has; steps on the way are noted.

        Raises EOFError or OSError when no more will come, and ValueError or others when something else came.
        """
        self.clock.read()
        while (message := self._inbox.read()) is not None:
            if message.number != self.number:
                raise ValueError(f"an answer to job {message.number}")
            if message.step is None:
                why = None if message.result is None else misfit(self.job, message.result, self.heard)
                if why is not None:
                    raise ValueError(why)
                return message
            self._note(message.step)
            self._steps += 1
            if self._steps > MOST_STEPS:
                raise ValueError(f"more than {MOST_STEPS:,} steps")
        return None

    def _note(self, step: str) -> None:
        self.step, self.since = step, time.monotonic()
        first = step.split(" ")[0][:20]  # a code is shorter
        self.heard.add(first)
        begins_stage, begins_check = first in (*STAGES, "start"), CHECK.fullmatch(step) is not None
        if begins_stage:
            self.stage = first
        if self.check is not None and (begins_stage or begins_check):
            self.checks[self.check] = self.since - self.check_since
            self.check = None
        if begins_check:
            self.check, self.check_since = step, self.since

    @property
    def signs(self) -> tuple[Connection, int]:
        """What to wait for: the first is ready when the process has said something, the second when it has gone."""
        return self._replies, self._process.sentinel

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

    def can_take(self, job: Submitted) -> bool:
        """Whether the idle process may do that job next: one that has run variants writes nothing that others read."""
        return self.can_go_on and (job.runs_variants or not self._has_run_variants)

    def exit_code(self) -> int | None:
        """How the process ended; None if it has not."""
        self._process.join(2)
        return self._process.exitcode

    def tail(self) -> str:
        """The end of what was printed during the running job."""
        with contextlib.suppress(OSError):
            said = end_of(log_of(self._folder, self.number), STDERR_TAIL).decode(errors="replace")
            return said.replace("\0", "").strip()
        return ""

    def end(self) -> None:
        """Kills the process with everything in its group and its session; does not wait for it to go."""
        pid = self._process.pid
        assert pid is not None
        below = descendants_of(pid)
        with contextlib.suppress(ProcessLookupError, PermissionError):  # before setsid there is only the process
            os.killpg(pid, signal.SIGKILL)  # the group outlives its leader
        kill(pid, *below)
        _kill_session(pid)
        end_adopted(self._server)
        self.gone_by = time.monotonic() + REAP_S
        self._jobs.close()
        self._replies.close()
        self.clock.close()

    @property
    def has_gone(self) -> bool:
        """Whether the process, which was ended, is no more, or takes longer than any should."""
        return not self.is_alive or time.monotonic() >= self.gone_by or self.has_lost_its_server

    @property
    def has_lost_its_server(self) -> bool:
        """Whether the fork server that started it was killed, stopped or replaced: then nothing is known of its end."""
        return self._server != server_pid() or not is_well(self._server)

    def went_with_its_server(self) -> bool:
        """Whether the server of this process, which has gone, has gone too. A server that is killed closes its files
        some time before it counts as dead: till then the standard library gives its processes a status of their
        own."""
        until = time.monotonic() + DYING_S
        while not self.has_lost_its_server:
            if self.exit_code() != NO_STATUS or time.monotonic() >= until:
                return False
            time.sleep(0.005)
        return True

    def clear(self) -> None:
        """Ends what the process, which has gone, left behind and removes what it wrote."""
        end_adopted(self._server)
        remove(self._folder)

    def see_off(self) -> None:
        """Waits until the ended process has gone."""
        self._process.join(max(0.0, self.gone_by - time.monotonic()) if is_well(self._server) else 0)
        self.clear()


def _kill_session(leader: int) -> None:
    """Kills what the process started in other groups of its session: a compiler, a child of a variant."""
    killed = {leader}
    for _ in range(5):  # one may start another meanwhile
        members = set(_session(leader)) - killed
        if not members:
            return
        kill(*members)
        killed |= members


def _session(leader: int) -> Iterator[int]:
    """Every process of that session; nothing where there is no /proc.

    Each is asked by a system call: to read a file for each of a large machine's thousand takes the driver 20 ms.
    """
    with contextlib.suppress(FileNotFoundError), os.scandir("/proc") as entries:
        for entry in entries:
            with contextlib.suppress(OSError):  # it has gone
                if entry.name.isdecimal() and os.getsid(int(entry.name)) == leader:
                    yield int(entry.name)
