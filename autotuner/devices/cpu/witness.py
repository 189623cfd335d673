"""What is known of a sample on the CPU beside its own clock: another clock, and who used the CPUs meanwhile.

A variant is native code in the process that times it. It may start threads on CPUs that it must not use, or threads
that slow the baseline, or replace a clock. No honest program can use more CPU time than its CPUs have, and two clocks
of one machine do not disagree. Nor does the clock of another process (race/third_clock.py).
"""

import contextlib
import time
from pathlib import Path
from time import clock_gettime_ns, monotonic_ns, process_time_ns, thread_time_ns

from autotuner.race.arms import Clocks
from autotuner.race.third_clock import Stamp, apart, many

MARGIN = 0.1
"""CPUs by which a sample may use more than its threads have."""
OWN = Path("/proc/self/task")
"""Has an entry for each thread of this process."""

REST_S = 0.03
"""Seconds after the last call until threads must have gone to sleep, and for which they are then watched."""

THREAD_CLOCK = 6
"""Linux's number of a thread's CPU clock is ~thread << 3 | this."""


def _used_ns() -> tuple[int, int, int]:
    """Nanoseconds of CPU time that the process has used, and this thread; and for how long threads of the process that
    could have run have waited for a CPU.

    Linux knows the time of threads that run on other CPUs as it was at their last tick, some milliseconds ago, except
    where it is asked for one of them. So each is asked for first.
    """
    waited = 0
    for thread in OWN.iterdir():
        with contextlib.suppress(OSError):  # it has ended
            clock_gettime_ns(~int(thread.name) << 3 | THREAD_CLOCK)
            waited += _waited_ns(thread)
    return process_time_ns(), thread_time_ns(), waited


def _waited_ns(thread: Path) -> int:
    """How long a thread has waited in the queue of a CPU: the second number of schedstat; 0 where Linux keeps none."""
    try:
        return int((thread / "schedstat").read_bytes().split()[1])
    except (FileNotFoundError, IndexError):
        return 0


class Witness:
    """Watches the samples of one arm. The scheduler may have stopped one sample between two clocks; not many."""

    def __init__(self, threads: int, leaves_work: bool) -> None:
        """`threads`: CPUs that may be used. `leaves_work`: the calling thread may leave all of the work to others."""
        self._threads, self._others = threads, threads if leaves_work else threads - 1
        self._began, self._stamp = (0, 0, 0, 0, 0), Stamp()
        self.waited_ns = 0
        """In the last sample: for how long its threads, all together, waited for a CPU that something else had."""
        self.forget()

    def forget(self) -> None:
        """Begins anew."""
        self._samples = self._crowded = self._apart = 0
        self._wall_ns = self._sample_ns = 0

    def begin(self) -> None:
        """A sample begins."""
        before = (monotonic_ns(), *_used_ns())
        self._stamp.begin()
        self._began = (*before, monotonic_ns())

    def end(self, sample_ns: int) -> None:
        """It has ended, and took so long by its own clock. No slow system call lies between the clocks."""
        ended = monotonic_ns()
        self._stamp.end(sample_ns)
        used = _used_ns()
        # CPUs may be used from before the first look at their use to after the last: this thread may stop between them.
        now = (monotonic_ns(), *used, ended)
        taken = (end - start for end, start in zip(now, self._began, strict=True))
        whole, process, thread, self.waited_ns, wall = taken
        crowded = process > (self._threads + MARGIN) * whole or process - thread > (self._others + MARGIN) * whole
        self._wall_ns, self._sample_ns = self._wall_ns + wall, self._sample_ns + sample_ns
        self._samples += 1
        self._crowded += crowded
        self._apart += apart(wall, sample_ns)

    @property
    def crowded(self) -> bool:
        """Samples used more CPUs than there may be."""
        return many(self._crowded, self._samples)

    @property
    def apart(self) -> bool:
        """The clock of the samples is not the other one."""
        return many(self._apart, self._samples)

    @property
    def clocks(self) -> Clocks:
        """What the two said of all samples."""
        return Clocks(host=self._wall_ns / 1e9, device=self._sample_ns / 1e9)


def still_busy() -> str | None:
    """What uses CPU time in this process while nothing is called, in words. A thread that waits for work by spinning
    has some time to go to sleep."""
    for _ in range(3):
        time.sleep(REST_S)
        started = time.process_time()
        time.sleep(REST_S)
        used = time.process_time() - started
        if used < REST_S / 2:
            return None
    return f"threads of the process used {100 * used / REST_S:.0f} % of a CPU although no call was under way"
