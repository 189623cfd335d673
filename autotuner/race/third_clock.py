"""The third clock: how long samples took by a clock that no code in their process can touch.

When a sample begins and when it has ended, the process that takes it sends the driver a few bytes. The kernel stamps
them as they are sent, so nobody has to be awake for that: the driver reads them when it hears of the job's next step
anyway. What the process says of a sample and what lies between the stamps must agree. It costs two system calls a
sample, outside of its time.
"""

import contextlib
import itertools
import socket
import struct

from autotuner.ops.surroundings import CHANGED
from autotuner.values import codes
from autotuner.values.verdict import Fault, Verdict

APART = 0.05
"""By how much two clocks may disagree, relative to a sample."""
APART_NS = 20_000
"""The same of a short sample: between two looks at clocks Python does other things."""
SHARE = 0.2
"""Share of an arm's samples that may be odd: the system may stop a process between two clocks."""
MARK = struct.Struct("=qq")
"""The arm's number, or what is CHANGED; and the nanoseconds of the sample that ends, BEGINS, or MEDDLED."""
BEGINS, MEDDLED = -1, -2
STAMPED = 35
"""Linux's SO_TIMESTAMPNS: the option, and what comes with each message then."""
MOST = 4096
"""Marks that are read at a time, and samples that are kept of an arm: more would be no race's."""
HEARD = 2
"""Samples of which the driver hears at least where it hears of any: more than a few need not find room."""
ARMS = itertools.count()


def apart(one_ns: float, other_ns: float) -> bool:
    """Whether two clocks disagree about a sample."""
    return abs(one_ns - other_ns) > max(APART * max(one_ns, other_ns), APART_NS)


def many(odd: int, samples: int) -> bool:
    """Whether too many samples are odd."""
    return odd >= 2 and odd > SHARE * samples


_channel: list[socket.socket] = []
"""From this process to its driver; none where nobody listens."""


def report_to(channel: socket.socket) -> None:
    """From now on what this process times is stamped for the driver at the channel's other end."""
    channel.setblocking(False)
    _channel[:] = [channel]


def tell_meddled(what: str) -> None:
    """A variant has changed that of this process, one of CHANGED."""
    _send(CHANGED.index(what), MEDDLED)


def _send(arm: int, what: int) -> None:
    for channel in _channel:
        with contextlib.suppress(OSError):  # the driver has not looked for long, or has gone
            channel.send(MARK.pack(arm, what))


class Stamp:
    """Stamps the samples of one arm."""

    def __init__(self) -> None:
        self._arm = next(ARMS)

    def begin(self) -> None:
        """A sample begins."""
        _send(self._arm, BEGINS)

    def end(self, sample_ns: int) -> None:
        """It has ended, and took so long by the clock of its process."""
        _send(self._arm, sample_ns)


class ThirdClock:
    """The driver's side, of one process."""

    def __init__(self, channel: socket.socket) -> None:
        channel.setblocking(False)
        with contextlib.suppress(OSError):  # a system without such stamps: nothing is compared
            channel.setsockopt(socket.SOL_SOCKET, STAMPED, 1)
        self._channel = channel
        self._begun = (BEGINS, 0)
        """The arm of the sample under way, and when it began."""
        self._samples: dict[int, list[tuple[int, int]]] = {}
        """By arm: nanoseconds by the process, and by the stamps."""
        self._meddled: int | None = None

    def read(self) -> None:
        """Takes in what has come."""
        with contextlib.suppress(OSError):
            for _ in range(MOST):
                data, extra, _, _ = self._channel.recvmsg(MARK.size, 256)
                stamps = [struct.unpack("=qq", raw[:16]) for _, kind, raw in extra if kind == STAMPED]
                if len(data) == MARK.size and stamps:
                    (arm, what), (seconds, rest) = MARK.unpack(data), stamps[0]
                    self._note(arm, what, seconds * 10**9 + rest)

    def _note(self, arm: int, what: int, at: int) -> None:
        if what == MEDDLED:
            self._meddled = arm
            return
        begun, since = self._begun
        self._begun = (arm, at) if what == BEGINS else (BEGINS, 0)
        if what != BEGINS and begun == arm:
            samples = self._samples.setdefault(arm, [])
            if len(samples) < MOST:
                samples.append((what, at - since))

    def forget(self) -> None:
        """The job is over."""
        self._samples.clear()
        self._meddled = None

    @property
    def hears(self) -> bool:
        """Whether it has heard of samples."""
        self.read()
        return sum(map(len, self._samples.values())) >= HEARD

    def fault(self, timed: bool = False) -> Fault | None:
        """A fault when samples of an arm took another time than their process says, when there was `timed` what the
        driver heard nothing of, or when a variant has meddled with Python."""
        if not self.hears and timed:
            detail = "its process says how long its samples took, and the driver's clock heard of none of them"
            return Fault(verdict=Verdict.IMPOSSIBLE, code="measure.clocks", detail=detail)
        for samples in self._samples.values():
            if many(sum(apart(*each) for each in samples), len(samples)):
                said, took = (sum(each) / 1e6 for each in zip(*samples, strict=True))
                clocks = f"{said:.1f} ms by the clock of their process, {took:.1f} ms by the driver's"
                detail = f"{len(samples)} samples took {clocks}"
                return Fault(verdict=Verdict.IMPOSSIBLE, code="measure.clocks", detail=detail)
        if self._meddled is not None:
            what = CHANGED[self._meddled % len(CHANGED)]
            detail = f"the variant has changed the process that judges it: {what}"
            return Fault(verdict=Verdict.CORRUPTING, code=codes.GUARD, detail=detail)
        return None

    def close(self) -> None:
        """The process has ended."""
        self._channel.close()
