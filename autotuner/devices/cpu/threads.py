"""On which CPUs the threads of this process may run."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

OWN = Path("/proc/self/task")
"""Has an entry for each thread of the process, those that a library keeps too."""


@contextlib.contextmanager
def on_one_cpu(cpus: Iterable[int], but: Iterable[int]) -> Iterator[None]:
    """All threads of the process share the first of `cpus` in the block, but for those with the ids `but`. Afterwards
    they have the CPUs that they had before, and those that were made in the block have all of `cpus`. One that chose
    its CPUs in the block keeps them."""
    every, left_out = set(cpus), set(but)
    single = {min(every)}
    before: dict[int, set[int]] = {}

    def move(thread: int) -> None:
        before[thread] = os.sched_getaffinity(thread)
        os.sched_setaffinity(thread, single)

    def give_back(thread: int) -> None:
        if os.sched_getaffinity(thread) == single:
            os.sched_setaffinity(thread, before.get(thread, every))

    _each_thread(move, left_out)
    try:
        yield
    finally:
        _each_thread(give_back, left_out)


def _each_thread(do: Callable[[int], None], left_out: set[int]) -> None:
    """Until there is no thread for which it was not done: one may be made meanwhile, by another one, as well as end."""
    done = set(left_out)
    while new := {int(entry.name) for entry in OWN.iterdir()} - done:
        for thread in new:
            with contextlib.suppress(ProcessLookupError):
                do(thread)
        done |= new
