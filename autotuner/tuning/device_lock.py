"""A device is timed by one autotuner of a machine at a time, whatever its user and its store.

The lock is an abstract Unix socket: no file that a kill leaves behind, no folder that two users would have to share. It
is gone with the process that bound it. Processes that this one starts do not get it. Containers with a network of their
own do not see each other's: there the races show that somebody else is at work.
"""

import errno
import pwd
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import psutil

from autotuner.tuning.run.quiet import Waiting, pause
from autotuner.values.errors import DeviceBusyError

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
    """Who has the lock, in words."""
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
