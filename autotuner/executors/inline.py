"""Jobs in this very process: for backends that run no foreign code (fake.py), in tests and replays."""

from __future__ import annotations

from collections import deque

from autotuner.backends import Backend
from autotuner.evaluate import AnyJob, Result, perform


class InlineExecutor:
    """Does each job when it is waited for, in the order of submission. A job that raises, raises out of `wait`."""

    def __init__(self, backend: Backend, width: int = 1) -> None:
        self._backend, self._width = backend, width
        self._waiting: deque[tuple[int, AnyJob]] = deque()
        self._next = 0

    @property
    def width(self) -> int:
        return self._width

    def submit(self, job: AnyJob) -> int:
        number = self._next
        self._next += 1
        self._waiting.append((number, job))
        return number

    def wait(self, timeout: float | None = None) -> tuple[int, Result] | None:
        if not self._waiting:
            return None
        number, job = self._waiting.popleft()
        return number, perform(job, self._backend, lambda _: None)

    def close(self) -> None:
        self._waiting.clear()
