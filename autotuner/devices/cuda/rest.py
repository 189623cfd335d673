"""Whether the device still works for this process although the stream of the samples has come to its end.

A variant may launch a kernel on a stream of its own that burns while the baseline is timed. Other programs cannot make
waiting for this process's work take long where it has none: they take the device in turns, and there is nothing to have
a turn for. But the system may stop a thread between two looks at the clock. So one long wait says nothing, and what
seemed to be at work is asked to do the same again.
"""

import time
from collections.abc import Callable
from typing import TypeVar

import torch

from autotuner.gate.recheck import restless
from autotuner.race.arms import ArmError

BUSY_S = 0.01
"""The device is at rest when waiting for all of it takes less than this, its stream being done."""
SHARE = 0.2
"""Share of a baseline's samples after which something else may seem to work."""

T = TypeVar("T")


def own_work_s() -> float:
    """Seconds for which the device went on working for this process after the current stream; it is at rest then."""
    torch.cuda.current_stream().synchronize()
    started = time.perf_counter()
    torch.cuda.synchronize()
    return time.perf_counter() - started


def made_at_rest(make: Callable[[], T], own_work_s: Callable[[], float]) -> T:
    """What `make` makes, where nothing is at work any more when it is made. Where something is, it is made once more.
    Raises ArmError when something is at work then, too."""
    for _ in range(2):
        made = make()
        took = own_work_s()
        if took < BUSY_S:
            return made
    detail = f"after a launch had been captured the device went on working for {1e3 * took:.0f} ms, on another stream"
    raise ArmError(restless(detail))


def still_busy(again: Callable[[], object], own_work_s: Callable[[], float]) -> str | None:
    """What the device still does after the last timed forward, in words. `again`: one more forward."""
    if own_work_s() < BUSY_S:
        return None
    again()
    took = own_work_s()
    return None if took < BUSY_S else f"after the last timed forward the device went on working for {1e3 * took:.0f} ms"


class AfterBaseline:
    """What seems to work on when the samples of a baseline have ended."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begins anew."""
        self._samples = self._busy = 0

    def ask(self, own_work_s: Callable[[], float]) -> None:
        """After a sample."""
        self._samples += 1
        self._busy += own_work_s() >= BUSY_S

    @property
    def busy(self) -> str | None:
        """That something worked beside many samples, in words."""
        if self._busy < 2 or self._busy <= SHARE * self._samples:
            return None
        return f"the device worked on behind {self._busy} of {self._samples} samples of the baseline, on another stream"
