"""Jobs in this very process: for backends that run no foreign code (fake_line.py), in tests and replays."""

from collections import deque
from collections.abc import Callable

from autotuner.run.jobs import AnyJob, Result, perform
from autotuner.run.line import Line


class InlineExecutor:
    """Does each job when it is waited for, in the order of submission. A job that raises, raises out of `wait`.

    One line stands for the devices of all lanes; `fresh` makes another for a job that wants its own.
    """

    def __init__(self, line: Line, width: int = 1, lanes: int = 1, *, fresh: Callable[[], Line] | None = None) -> None:
        self._line, self._width, self._lanes, self._fresh = line, width, lanes, fresh
        self._waiting: deque[tuple[int, AnyJob]] = deque()
        self.jobs: list[AnyJob] = []
        """All that it was asked, in order."""

    @property
    def width(self) -> int:
        return self._width

    @property
    def builders(self) -> int:
        return 1

    @property
    def lanes(self) -> int:
        return self._lanes

    def submit(self, job: AnyJob, lane: int = 0) -> int:
        if not 0 <= lane < self._lanes:
            raise ValueError(f"no lane {lane}")
        self.jobs.append(job)
        self._waiting.append((len(self.jobs), job))
        return len(self.jobs)

    def wait(self, timeout: float | None = None) -> tuple[int, Result] | None:
        if not self._waiting:
            return None
        number, job = self._waiting.popleft()
        return number, perform(job, self._line_for(job), lambda _: None)

    def close(self) -> None:
        self._waiting.clear()

    def _line_for(self, job: AnyJob) -> Line:
        if self._fresh is not None and getattr(job, "fresh", False):
            return self._fresh()
        return self._line
