"""The fork server as the driver sees it: what starts every process that does jobs.

It may be killed or stopped, by a person, by the system or by a variant. So a start has a deadline, and a server that is
not well is ended and replaced. It adopts whoever loses its parent among those that it has started, however far they
moved away (setsid, a double fork): the driver finds them there and ends them.
"""

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from multiprocessing import forkserver, resource_tracker
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

import psutil

from autotuner.values.errors import InfrastructureError

START_S = 120.0
"""A server that has not started a process by then is stopped, or busy beyond hope. The first start imports torch."""
TRIES = 3
GONE = (None, psutil.STATUS_ZOMBIE)
STOPPED = (*GONE, psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP, psutil.STATUS_DEAD)
"""States of a process that does nothing any more."""
HAS_CHILDREN = Path(f"/proc/self/task/{os.getpid()}/children").exists()
"""Whether the system lists a process's children; else every process is asked for its parent, which takes longer."""
MANY = 10_000
ROUNDS = 20
"""Looks for adopted processes; each may have started another meanwhile."""


class ForkServer:
    """One for all executors of this process."""

    def __init__(self, preload: list[str], start_s: float = START_S) -> None:
        """`preload`: modules that it imports before it starts anything."""
        self.context: ForkServerContext = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(preload)
        self._start_s = start_s
        resource_tracker.ensure_running()  # which unblocks signals
        before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))  # Ctrl-C reaches what imports too
        with contextlib.suppress(OSError):  # it imports while its caller gets ready; `start` says what is wrong
            forkserver.ensure_running()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def renew(self) -> None:
        """Ends the server where nothing that it has started runs: what it forks from now on lies at other addresses."""
        if not any(isinstance(process, ForkServerProcess) for process in multiprocessing.active_children()):
            kill(server_pid())

    def start(self, process: ForkServerProcess) -> int:
        """Starts a process; the number of the server that did. Raises InfrastructureError when none can."""
        why = ""
        for _ in range(TRIES):
            if not is_well(server_pid()):
                kill(server_pid())
            late = threading.Timer(self._start_s, lambda: kill(server_pid()))
            late.daemon = True
            late.start()
            try:
                process.start()
                return server_pid() or 0
            except (OSError, EOFError) as error:  # it ended before the process was there
                why = f"{type(error).__name__}: {error}"
                # It frees its memory first, and takes no calls: on a busy machine for longer than TRIES tries.
                until = time.monotonic() + (self._start_s if isinstance(error, (ConnectionError, EOFError)) else 0)
                while time.monotonic() < until and (pid := server_pid()) and is_well(pid):
                    time.sleep(0.01)
            finally:
                late.cancel()
        raise InfrastructureError(f"no process could be started, {TRIES} times ({why}); the machine needs a look")


def server_pid() -> int | None:
    """The number of the fork server; None before the first start. The standard library tells it to nobody else."""
    found: int | None = forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined]
    return found


def is_well(pid: int | None) -> bool:
    """Whether that server runs; true before there is one."""
    return pid is None or state_of(pid) not in STOPPED


def kill(*pids: int | None) -> None:
    """Kills these processes, stopped or not, and so all that a server has started; who has gone needs nothing."""
    for pid in filter(None, pids):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def state_of(pid: int) -> str | None:
    """The state of a process, a word of psutil's; None when it has gone."""
    try:
        return str(psutil.Process(pid).status())
    except psutil.Error:
        return None


def children_of(parent: int) -> Iterator[int]:
    """The processes whose parent that is; nothing where they cannot be seen."""
    if not HAS_CHILDREN:
        with contextlib.suppress(psutil.Error):
            yield from (each.pid for each in psutil.Process(parent).children())
        return
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{parent}/task").iterdir():
            with contextlib.suppress(OSError):
                yield from map(int, (task / "children").read_text().split())


def descendants_of(ancestor: int) -> list[int]:
    """Its children, and theirs, as far as none has lost its parent."""
    found: list[int] = []
    left = [ancestor]
    while left and len(found) < MANY:
        children = list(children_of(left.pop()))
        found += children
        left += children
    return found


def end_adopted(server: int | None) -> None:
    """Kills the server's children that nobody has started as a process of jobs, and theirs in turn."""
    if server is None:
        return
    known = {process.pid for process in multiprocessing.active_children()}
    for _ in range(ROUNDS):
        strangers = [pid for pid in children_of(server) if pid not in known and state_of(pid) not in GONE]
        if not strangers:
            return
        kill(*strangers)
        time.sleep(0.001)
