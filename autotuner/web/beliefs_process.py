"""Beliefs take seconds of a whole CPU: they are found in a process of its own that gives way to everything else."""

import asyncio
import os
import threading
from collections import OrderedDict
from concurrent.futures import BrokenExecutor, CancelledError, Future, ProcessPoolExecutor
from contextlib import suppress
from multiprocessing import active_children, get_context
from multiprocessing.process import BaseProcess

from autotuner.store import Store
from autotuner.values.errors import InfrastructureError
from autotuner.views.beliefs import StudyBeliefs, kept_beliefs

KEPT = 8
"""Studies whose beliefs are kept."""
GIVES_WAY = 19
"""The process's niceness: the most there is."""


def _find(store: str, study: str) -> StudyBeliefs:
    with Store.open(store, read_only=True) as opened:
        return kept_beliefs(opened, study)


def _give_way() -> None:
    os.nice(GIVES_WAY)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"


class BeliefsFinder:
    """Finds the beliefs of one study after the other, and keeps the last ones."""

    def __init__(self, store: str) -> None:
        self._store = store
        self._pool: ProcessPoolExecutor | None = None
        self._processes: list[BaseProcess] = []
        self._found: OrderedDict[tuple[str, str], Future[StudyBeliefs]] = OrderedDict()
        self._lock = threading.Lock()

    def ask(self, study: str, tag: str) -> Future[StudyBeliefs]:
        """The beliefs of a study at a revision; begun when they are first asked for."""
        with self._lock:
            key = study, tag
            if key in self._found and not _broken(self._found[key]):
                self._found.move_to_end(key)
                return self._found[key]
            for other in [each for each in self._found if each[0] == study and self._found[each].cancel()]:
                del self._found[other]  # of an older revision, and not begun
            there = active_children()
            self._found[key] = self._begin(study)
            self._found.move_to_end(key)
            self._processes += [each for each in active_children() if each not in there]
            while len(self._found) > KEPT:
                self._found.popitem(last=False)
            return self._found[key]

    async def wait(self, study: str, tag: str) -> StudyBeliefs:
        """The beliefs of a study at a revision. Raises InputError, or InfrastructureError: ask again."""
        try:
            return await asyncio.wrap_future(self.ask(study, tag))
        except (CancelledError, asyncio.CancelledError):
            raise InfrastructureError("the study has changed meanwhile: ask again") from None
        except BrokenExecutor:
            raise InfrastructureError("the process that finds beliefs was lost: ask again") from None

    def _begin(self, study: str) -> Future[StudyBeliefs]:
        if self._pool is not None:
            with suppress(BrokenExecutor):  # the process was lost, maybe while it had nothing to do
                return self._pool.submit(_find, self._store, study)
        self._pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_give_way)
        return self._pool.submit(_find, self._store, study)

    def last(self, study: str) -> StudyBeliefs | None:
        """What was found of the study at any revision, the newest one; None before any was."""
        with self._lock:
            done = [
                each for key, each in self._found.items() if key[0] == study and each.done() and not each.cancelled()
            ]
        return next((each.result() for each in reversed(done) if each.exception() is None), None)

    def close(self) -> None:
        """Ends the process, whatever it is at: beliefs of a large study take longer than anybody waits for an end."""
        with self._lock:
            if self._pool is not None:
                self._pool.shutdown(wait=False, cancel_futures=True)
                self._pool = None
            for each in self._processes:
                each.terminate()
            self._processes.clear()


def _broken(found: Future[StudyBeliefs]) -> bool:
    """Whether the process was lost, so that a new one is to try again."""
    return found.done() and not found.cancelled() and isinstance(found.exception(), BrokenExecutor)
