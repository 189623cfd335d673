"""Counters of a CPU, by `perf_event_open`. Run as a module this is the process that counts itself."""

import ctypes
import errno
import fcntl
import json
import os
import platform
import struct
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from autotuner.devices.counted import command, forward_of, output_of
from autotuner.values.errors import InputError
from autotuner.values.profile import Counted, Side

EVENTS = {
    "cycles": (0, 0),
    "instructions": (0, 1),
    "cache-references": (0, 2),
    "cache-misses": (0, 3),
    "branch-misses": (0, 5),
}
"""Type and number of each, as linux/perf_event.h has them; the names are those of perf."""
CALL = {"x86_64": 298, "aarch64": 241}
DISABLED, INHERIT, EXCLUDE_KERNEL, EXCLUDE_HYPERVISOR = 1 << 0, 1 << 1, 1 << 5, 1 << 6
TIMES = 1 | 2
"""Each number comes with how long its event was on, and how long it was counted."""
SIZE = 120
ENABLE, DISABLE = 0x2400, 0x2401
SECONDS = 1.0
"""Of forwards that are counted."""
PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")


def count(side: Side, report: Path | None = None) -> Counted:
    """What the processor counts of a side; there is no report. Raises InputError where it may not be asked."""
    if report is not None:
        raise InputError("--report keeps what ncu found: a CPU has none")
    for each in opened(EVENTS).values():
        os.close(each)
    with tempfile.TemporaryDirectory(prefix="autotuner-profile-") as place:
        done = output_of(command(__name__, side, Path(place)))
    if done.returncode:
        raise InputError(f"nothing was counted: {done.stderr.strip().rpartition(chr(10))[2][:200]}")
    return Counted(tool="perf_event_open", counters=json.loads(done.stdout))


def opened(events: Mapping[str, tuple[int, int]]) -> dict[str, int]:
    """A file of each event of this process and its future threads, counting nothing yet. Raises InputError."""
    library = ctypes.CDLL(None, use_errno=True)
    files: dict[str, int] = {}
    for name, (kind, number) in events.items():
        flags = DISABLED | INHERIT | EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR
        asked = struct.pack("=IIQQQQQ", kind, SIZE, number, 0, 0, TIMES, flags).ljust(SIZE, b"\0")
        file = library.syscall(CALL.get(platform.machine(), -1), ctypes.create_string_buffer(asked), 0, -1, -1, 0)
        if file < 0:
            raise InputError(refused(ctypes.get_errno()))
        files[name] = file
    return files


def refused(error: int) -> str:
    """Why the processor does not count, in a line with the remedy."""
    if error in (errno.EACCES, errno.EPERM):
        level = PARANOID.read_text().strip() if PARANOID.exists() else "?"
        remedy = "sysctl kernel.perf_event_paranoid=2; a container also needs --cap-add PERFMON"
        return f"counters may not be read (perf_event_paranoid is {level}): {remedy}"
    said = os.strerror(error).lower()
    return f"this processor shows no counters ({said}), as most virtual machines: profile on the hardware itself"


def run(side: Side, events: Mapping[str, tuple[int, int]] = EVENTS) -> dict[str, float]:
    """The events of one forward, the mean over a second of them."""
    files = opened(events)  # before torch has threads, which would not be counted
    import torch

    torch.set_num_threads(side.threads)
    forward, calls = forward_of(side, "cpu"), 0
    forward()
    for each in files.values():
        fcntl.ioctl(each, ENABLE, 0)
    until = time.perf_counter() + SECONDS
    while time.perf_counter() < until:
        forward()
        calls += 1
    for each in files.values():
        fcntl.ioctl(each, DISABLE, 0)
    return {name: _number(file) / calls for name, file in files.items()}


def _number(file: int) -> float:
    """What was counted; where events had the counters in turns, for the whole time."""
    value, on, counted = struct.unpack("=QQQ", os.read(file, 24))
    os.close(file)
    return float(value) * on / counted if counted else 0.0


def main() -> None:
    """Counts a side and prints its events."""
    sys.stdout.write(json.dumps(run(Side.model_validate_json(Path(sys.argv[1]).read_text()))))


if __name__ == "__main__":
    main()
