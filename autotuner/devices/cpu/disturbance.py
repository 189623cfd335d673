"""Who uses the CPUs of this machine now, besides ourselves."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

from autotuner.devices.environment import usable_cpus
from autotuner.devices.processes import TICKS, Process, own, processes

WATCHED_S = 0.5
"""Seconds over which it is watched who uses CPU time."""
LEAST = 0.05
"""Of a CPU: who uses less is not named."""
NAMED = 4
"""Processes at most that are named."""
USER, NICE, SYSTEM, STEAL = 1, 2, 3, 8
"""Places in the first line of /proc/stat."""


def who_disturbs() -> str:
    """The processes that use most CPU time, what the host of a virtual machine takes, and the load, in a line; "" when
    nobody uses any that can be seen."""
    before, total, started = processes(), _machine(), time.monotonic()
    time.sleep(WATCHED_S)
    seconds, after, now = time.monotonic() - started, processes(), _machine()
    mine = own(after.values())
    used = {pid: (each.seconds - _seconds(before, pid)) / seconds for pid, each in after.items()}
    others = sorted((pid for pid in used if pid not in mine), key=lambda pid: -used[pid])
    named = [f"{after[pid]} {used[pid]:.0%}" for pid in others[:NAMED] if used[pid] > LEAST]
    said = [f"in use by {', '.join(named)} of a CPU"] if named else []
    unseen = (now[0] - total[0]) / seconds - sum(used.values())
    if unseen > max(2 * LEAST, sum(used.values())):  # another container's; short-lived ones are never seen
        said.append(f"{unseen:.1f} CPUs are used by processes that cannot be seen from here")
    stolen = (now[1] - total[1]) / seconds
    if stolen > LEAST:
        said.append(f"the host of this virtual machine takes {stolen:.1f} of its CPUs away")
    return f"{'; '.join(said)}; load {os.getloadavg()[0]:.1f} on {usable_cpus()} CPUs" if said else ""


def _seconds(found: Mapping[int, Process], pid: int) -> float:
    return found[pid].seconds if pid in found else 0.0


def _machine() -> tuple[float, float]:
    """Seconds of CPU time since the start of the system: used by all processes, and taken away by a host."""
    try:
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
        return sum(int(fields[place]) for place in (USER, NICE, SYSTEM)) / TICKS, int(fields[STEAL]) / TICKS
    except (OSError, IndexError):
        return 0.0, 0.0
