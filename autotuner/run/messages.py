"""What a job's process says to the driver, and how the driver reads it without trusting it."""

from __future__ import annotations

import os
import pickle
from multiprocessing.connection import Connection
from typing import NamedTuple

from autotuner.run.jobs import Result
from autotuner.values import codes
from autotuner.values.errors import AutotunerError
from autotuner.values.outcome import Outcome
from autotuner.values.verdict import Fault, Verdict

LARGEST_MESSAGE = 1 << 26
SPOILING = (
    Verdict.CRASHED,
    Verdict.HUNG,
    Verdict.CORRUPTING,
    Verdict.NONDETERMINISTIC,
    Verdict.LAUNCH_FAILED,
    Verdict.IMPOSSIBLE,
)
"""After these verdicts nothing is certain about the process that gave them."""


class Message(NamedTuple):
    """The step that begins in the job with that number, or how it ended."""

    number: int
    step: str | None = None
    result: Result | None = None
    error: AutotunerError | None = None
    failure: str | None = None

    @property
    def spoils(self) -> bool:
        """Whether the process, having ended a job like this, must do no other."""
        if self.result is None:
            return True
        if not isinstance(self.result, Outcome | Fault):
            return False
        fault = self.result.fault if isinstance(self.result, Outcome) else self.result
        full = fault is not None and fault.code == codes.FULL  # the process gives back what a variant may have taken
        return full or self.result.verdict in SPOILING


def send(pipe: Connection, key: bytes, message: Message) -> None:
    """Sends a message that an Inbox with the key will read."""
    pipe.send_bytes(key + pickle.dumps(message))


class Inbox:
    """The messages of one process. A variant can write anything into any open file: reading never waits, and nothing
    is unpickled that does not begin with the process's key."""

    def __init__(self, pipe: Connection, key: bytes) -> None:
        os.set_blocking(pipe.fileno(), False)
        self._pipe, self._key = pipe, key
        self._bytes = bytearray()

    @property
    def is_empty(self) -> bool:
        """Nothing has come that was not read, not even the end."""
        return not self._bytes and not self._pipe.poll()

    def read(self) -> Message | None:
        """The next message; None when there is none yet. Raises EOFError at the end, ValueError for anything else."""
        while True:
            frame = self._frame()
            if frame is not None:
                if not frame.startswith(self._key):
                    raise ValueError(f"{len(frame)} bytes that are no message")
                message = pickle.loads(frame[len(self._key) :])
                assert isinstance(message, Message)
                return message
            try:
                more = os.read(self._pipe.fileno(), 1 << 16)
            except BlockingIOError:
                return None
            if not more:
                raise EOFError
            self._bytes += more

    def _frame(self) -> bytes | None:
        """The next whole frame as Connection.send_bytes writes it: its length in four bytes, then its bytes."""
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
