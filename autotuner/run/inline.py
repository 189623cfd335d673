"""Jobs in this very process: for backends that run no foreign code (fake.py), in tests and replays."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from autotuner.devices.backend import Backend
from autotuner.run.jobs import AnyJob, Result, perform


class InlineExecutor:
    """Does each job when it is waited for, in the order of submission. A job that raises, raises out of `wait`.

    One backend stands for the devices of all lanes; `fresh` makes another for a job that wants its own.
    """

    def __init__(
        self, backend: Backend, width: int = 1, lanes: int = 1, *, fresh: Callable[[], Backend] | None = None
    ) -> None:
        self._backend, self._width, self._lanes, self._fresh = backend, width, lanes, fresh
        self._waiting: deque[tuple[int, AnyJob]] = deque()
        self._next = 0

    @property
    def width(self) -> int:
        return self._width

    @property
    def lanes(self) -> int:
        return self._lanes

    def submit(self, job: AnyJob, lane: int = 0) -> int:
        if not 0 <= lane < self._lanes:
            raise ValueError(f"no lane {lane}")
        number = self._next
        self._next += 1
        self._waiting.append((number, job))
        return number

    def wait(self, timeout: float | None = None) -> tuple[int, Result] | None:
        if not self._waiting:
            return None
        number, job = self._waiting.popleft()
        return number, perform(job, self._backend_for(job), lambda _: None)

    def close(self) -> None:
        self._waiting.clear()

    def _backend_for(self, job: AnyJob) -> Backend:
        if self._fresh is not None and getattr(job, "fresh", False):
            return self._fresh()
        return self._backend
