"""Waiting: for a device that another run has, and, where the user wants that, for a quiet machine.

Nothing else waits. What disturbs a race widens its interval (race/blocks.py). A device is timed by one autotuner of a
machine at a time, whatever its user and its store. The lock is an abstract Unix socket: no file that a kill leaves
behind, no folder that two users would have to share. It is gone with the process that bound it. Processes that this one
starts do not get it. Containers with a network of their own do not see each other's: there the races show that somebody
else is at work.
"""

import errno
import pwd
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import psutil
from pydantic import Field

from autotuner.run.executor import BEAT_S, Beat
from autotuner.values.errors import DeviceBusyError
from autotuner.values.model import Model

SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 5.0
"""Seconds between two looks. Between these a pause is a quarter of the time waited so far."""


class Waiting(Model):
    """The run waits for a quiet machine, or for a device that another run has."""

    detail: str
    since_s: float = Field(description="how long already, seconds")


class Waited(Model):
    """The wait for a quiet machine is over, and the run goes on."""

    waited_s: float
    detail: str = Field(default="", description='who disturbs still, as there was no more time to wait; "": nobody')


def pause(waited_s: float, within_s: float, beat: Beat) -> None:
    """Sleeps until the next look, or until it has waited for `within_s` seconds, and beats meanwhile."""
    until = time.monotonic() + min(LONGEST_PAUSE_S, max(SHORTEST_PAUSE_S, waited_s / 4), within_s - waited_s)
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(left, BEAT_S))
        beat()


def wait_until_quiet(
    who: Callable[[], str], within_s: float, listen: Callable[[Waiting | Waited], None], beat: Beat
) -> None:
    """Waits until nobody is seen who disturbs, for `within_s` seconds at most. `who` says who does, in words; "" where
    nobody can be seen."""
    began = time.monotonic()
    detail = who() if within_s > 0 else ""
    while detail and (waited := time.monotonic() - began) < within_s:
        listen(Waiting(detail=detail, since_s=waited))
        pause(waited, within_s, beat)
        detail = who()
    if within_s > 0:
        listen(Waited(waited_s=time.monotonic() - began, detail=detail))


# Devices --------------------------------------------------------------------------------------------------------------

WAITING_ROOM = 1024
"""How many others may ask the socket who has it."""
PEER = struct.Struct("3i")
"""Process, user and group of the peer of a socket: struct ucred of Linux."""


@contextmanager
def held(names: Sequence[str], device: str, patience_s: float, listen: Callable[[Waiting], None]) -> Iterator[None]:
    """Holds the locks of these names while the block runs. `device`: what they are, for a person.

    Raises DeviceBusyError when patience has ended, naming who has one.
    """
    started, who = time.monotonic(), ""
    with ExitStack() as stack:
        for name in sorted(names):  # in one order, so that no two wait for each other
            while (lock := _bound(name)) is None:
                waited = time.monotonic() - started
                who = who or _holder(name)
                if waited >= patience_s:
                    raise DeviceBusyError(f"{device} is timed by {who}: wait for it, or stop it")
                listen(Waiting(detail=f"{device} is timed by {who}", since_s=waited))
                pause(waited, patience_s, lambda: None)
            stack.enter_context(lock)
        yield


def _address(name: str) -> str:
    return f"\0autotuner/{name}"


def _bound(name: str) -> socket.socket | None:
    """The lock, if nobody else has it."""
    lock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        lock.bind(_address(name))
        lock.listen(WAITING_ROOM)
    except OSError as error:
        lock.close()
        if error.errno != errno.EADDRINUSE:
            raise
        return None
    return lock


def _holder(name: str) -> str:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        caller.setblocking(False)
        try:
            caller.connect(_address(name))
            pid, user, _ = PEER.unpack(caller.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size))
        except OSError:
            return "another autotuner"
    try:
        named = f"{psutil.Process(pid).name()} (pid {pid})"  # its command line may hold a password
    except psutil.Error:
        named = f"pid {pid}"
    return f"{named} of {_user(user)}"


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"
