"""Which tests a run takes, and when each has its turn.

Most tests run beside others. One that is marked `alone` has the machine to itself, whichever process of pytest-xdist
runs it. One that is marked `timed` has deadlines of seconds: where it fails beside others it is tried once more there,
as to be alone means to wait until all others have ended, and then alone. A test that is to be alone on a machine that
is busy with something else is skipped: neither outcome would mean anything.
"""

import fcntl
import functools
import os
import random
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

from autotuner.devices.cuda.probe import probe

RERUNS = 2
ON_A_GPU = 12
"""Processes that use one at a time, at most."""
LOOKS = 3
LOOK_S = 0.2
OWN = 0.9
"""A process that computes gets this share of a CPU on a quiet machine."""
BUSY = "the machine is busy with something else"
FAILED = pytest.StashKey[str]()
"""Of a test that was run already: how it failed."""


class Turns:
    """Lets tests run beside each other or one alone, over all processes of a run."""

    def __init__(self, queue: Path, room: Path) -> None:
        """Of two files that every process of a run finds."""
        # Whoever waits to be alone keeps the queue, so that nobody else begins. They stay open to the process's end.
        self._queue, self._room = (os.open(path, os.O_RDONLY | os.O_CLOEXEC) for path in (queue, room))
        self._alone = False

    def begin(self, item: pytest.Item) -> None:
        """Waits for the turn of a test."""
        again = getattr(item, "execution_count", 1) > RERUNS
        if not self._alone:
            self._alone = is_alone(item) or again
            fcntl.flock(self._queue, fcntl.LOCK_EX)
            fcntl.flock(self._room, fcntl.LOCK_EX if self._alone else fcntl.LOCK_SH)
            fcntl.flock(self._queue, fcntl.LOCK_UN)
        if self._alone and not any(is_quiet() for _ in range(LOOKS)):
            pytest.skip(f"{BUSY}, and beside others it failed: {item.stash[FAILED]}" if again else BUSY)

    def end(self, following: pytest.Item | None) -> None:
        """Gives the turn back, unless the next test of this process is to be alone too."""
        if self._alone and following is not None and is_alone(following):
            return
        self._alone = False
        fcntl.flock(self._room, fcntl.LOCK_UN)


def is_alone(item: pytest.Item) -> bool:
    return item.get_closest_marker("alone") is not None


def is_quiet() -> bool:
    """Whether a process that computes gets a CPU for itself."""
    begun, used = time.monotonic(), time.thread_time()
    while time.monotonic() - begun < LOOK_S:
        pass
    return time.thread_time() - used > OWN * LOOK_S


def in_order(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Those that run alone first: in one process one after the other, so that the others wait once."""
    return sorted(items, key=lambda item: not is_alone(item))


def left_out(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """What a run without --all leaves out. `@pytest.mark.sampled(COUNT, "name")` on tests of one function: of all that
    share the name, or of all of the function without one, COUNT run. `@pytest.mark.sampled(COUNT, of="name")`: of the
    tests of any function that share it."""
    groups: dict[str, list[pytest.Item]] = defaultdict(list)
    counts: dict[str, int] = {}
    for item in items:
        mark = item.get_closest_marker("sampled")
        if mark is not None:
            count, *name = mark.args
            key = mark.kwargs.get("of") or f"{item.nodeid.split('[')[0]} {name}"
            groups[key].append(item)
            counts[key] = count
    return [
        item
        for key, group in groups.items()
        for item in random.Random(key).sample(group, max(0, len(group) - counts[key]))
    ]


def without_gpu(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """The tests that need a GPU, where there is none that this Python's torch can use."""
    wanting = [item for item in items if item.get_closest_marker("gpu") is not None]
    return wanting if wanting and not has_gpu() else []


@functools.cache
def has_gpu() -> bool:
    """True where there is a GPU and a torch built for CUDA."""
    if isinstance(probe(), str):
        return False
    import torch

    return torch.cuda.is_available()
