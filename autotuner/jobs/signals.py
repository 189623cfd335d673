"""Signals to a worker, and what it tells a service manager.

SIGTERM, SIGINT, SIGHUP and SIGUSR1 (what Slurm, Kubernetes and systemd send before they kill) have it hand back what it
works on within ten seconds.
"""

import contextlib
import signal
import socket
from collections.abc import Callable, Iterator
from types import FrameType

from autotuner.values import config

STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)


class Stopping(KeyboardInterrupt):
    """The worker is to end: what it works on goes back into the queue."""


class StopSignal:
    """Whether, and why, the worker is to end."""

    def __init__(self) -> None:
        self.why: str | None = None
        self.waits = True
        """A signal is only noted: what is raised while modules are imported comes out of them as anything."""
        self.now: Callable[[], None] = lambda: None
        """Called when a signal comes."""

    def check(self) -> None:
        """Raises Stopping once a signal has come; from here on the handler raises it at once. It is asked again
        and again, as what is raised while the interpreter clears up is lost."""
        self.waits = False
        if self.why is not None:
            raise Stopping(self.why)

    @contextlib.contextmanager
    def in_hand(self) -> Iterator[None]:
        """Whatever comes out of the block after a signal is that signal: a module that is being imported, for one,
        makes another error of it."""
        try:
            yield
        except Exception as error:
            if self.why is None:
                raise
            raise Stopping(self.why) from error

    def _hear(self, number: int, _frame: FrameType | None) -> None:
        if self.why is None:
            self.why = signal.Signals(number).name
            self.now()
            if not self.waits:
                raise Stopping(self.why)

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Hears signals while the block runs."""
        before = {number: signal.signal(number, self._hear) for number in STOPPING}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def tell_manager(words: str) -> None:
    """Tells systemd how the service is, such as READY=1 or WATCHDOG=1; nothing where none asked for it."""
    address = config.notify_socket()
    if address:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as service:
            service.connect("\0" + address[1:] if address.startswith("@") else address)
            service.send(words.encode())
