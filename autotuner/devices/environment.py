"""The machine around a device: its CPUs, our processes, and the versions that any number depends on."""

import math
import os
import platform
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

from autotuner.values.versions import version_of

BUILD_BYTES = 2 << 30
"""Memory that a compiler may take; nvcc takes as much for a large kernel."""
SYSTEM = Path("/")
"""Where /proc and /sys are."""


def usable_cpus() -> int:
    """CPUs that this process may run on, no more than its control groups give it the time of; at least 1."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(allowed, math.floor(cpu_quota() or allowed)))


def builders() -> int:
    """Compilers that may run side by side: one a CPU, as long as a control group's memory has room for them."""
    limit = memory_limit()
    return usable_cpus() if limit is None else max(1, min(usable_cpus(), limit // BUILD_BYTES))


def cpu_quota(system: Path = SYSTEM) -> float | None:
    """Seconds of CPU time a second that the control groups of this process have; None where none limits them."""
    found = []
    for folder in _groups("cpu", system):
        with suppress(OSError, ValueError, ZeroDivisionError):
            quota, period = (folder / "cpu.max").read_text().split()
            found.append(float(quota) / float(period))  # "max" is no number
        with suppress(OSError, ValueError, ZeroDivisionError):
            quota_us, period_us = (float((folder / f"cpu.cfs_{of}_us").read_text()) for of in ("quota", "period"))
            if quota_us > 0:
                found.append(quota_us / period_us)
    return min(found, default=None)


def memory_limit(system: Path = SYSTEM) -> int | None:
    """Bytes that the control groups of this process may use; None where none limits them."""
    found = []
    for folder in _groups("memory", system):
        for name in ("memory.max", "memory.limit_in_bytes"):
            with suppress(OSError, ValueError):
                found.append(int((folder / name).read_text()))
    least = min(found, default=None)
    return None if least is None or least >= psutil.virtual_memory().total else least


def usable_memory() -> int:
    """Bytes that this process may use: of the machine, no more than its control groups give it."""
    return memory_limit() or psutil.virtual_memory().total


def _groups(controller: str, system: Path) -> Iterator[Path]:
    """The folders of this process's control groups, of version 1 and 2, and of all groups that they lie in. A container
    may see the path that a group has outside it: then the root of what it sees is its own group."""
    mounted = system / "sys/fs/cgroup"
    try:
        lines = (system / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for _, controllers, path in (line.split(":", 2) for line in lines):
        if controllers and controller not in controllers.split(","):
            continue
        for root in (mounted / (controllers or "unified"), mounted / controller if controllers else mounted):
            inmost = root / path.lstrip("/")
            yield from (each for each in (inmost, *inmost.parents) if each.is_relative_to(root) and each.is_dir())


def own_processes() -> set[int]:
    """The numbers of this process and of all that it has started, themselves or through others."""
    ours = psutil.Process()
    return {ours.pid, *(each.pid for each in ours.children(recursive=True))}


def environment() -> dict[str, str]:
    """Versions that any number depends on."""
    return {
        "os": platform.platform(),
        "python": platform.python_version(),
        "torch": version_of("torch"),
        "optuna": version_of("optuna"),
        "autotuner": version_of("kernel-autotuner"),
        "cpus": str(usable_cpus()),
    }
