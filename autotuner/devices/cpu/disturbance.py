"""Who uses the CPUs of this machine now, besides ourselves."""

from __future__ import annotations

import os
import time

import psutil

from autotuner.devices.environment import own_processes, usable_cpus

WATCHED_S = 0.5
"""Seconds over which it is watched who uses CPU time."""
LEAST = 0.05
"""Of a CPU: who uses less is not named."""
NAMED = 4
"""Processes at most that are named."""


def who_disturbs() -> str:
    """The processes that use most CPU time, what the host of a virtual machine takes, and the load, in a line; "" when
    nobody uses any that can be seen."""
    before, total, started = _seconds(), psutil.cpu_times(), time.monotonic()
    time.sleep(WATCHED_S)
    seconds, after, now = time.monotonic() - started, _seconds(), psutil.cpu_times()
    mine = own_processes()
    used = {each: (after[each] - before.get(each, 0.0)) / seconds for each in after}
    others = sorted((each for each in used if each[0] not in mine), key=lambda each: -used[each])
    named = [f"{name} (pid {pid}) {used[pid, name]:.0%}" for pid, name in others[:NAMED] if used[pid, name] > LEAST]
    said = [f"in use by {', '.join(named)} of a CPU"] if named else []
    whole = sum(getattr(now, kind) - getattr(total, kind) for kind in ("user", "nice", "system")) / seconds
    unseen = whole - sum(used.values())
    if unseen > max(2 * LEAST, sum(used.values())):  # another container's; short-lived ones are never seen
        said.append(f"{unseen:.1f} CPUs are used by processes that cannot be seen from here")
    stolen = (now.steal - total.steal) / seconds
    if stolen > LEAST:
        said.append(f"the host of this virtual machine takes {stolen:.1f} of its CPUs away")
    return f"{'; '.join(said)}; load {os.getloadavg()[0]:.1f} on {usable_cpus()} CPUs" if said else ""


def _seconds() -> dict[tuple[int, str], float]:
    """The CPU time of every process that can be seen, all its threads together, by number and name."""
    found = (each.info for each in psutil.process_iter(["pid", "name", "cpu_times"]))
    return {(of["pid"], of["name"]): sum(of["cpu_times"][:2]) for of in found if of["cpu_times"] is not None}
