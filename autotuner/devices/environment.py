"""The machine around a device: its CPUs, our processes, and the versions that any number depends on."""

from __future__ import annotations

import os
import platform

import psutil

from autotuner.values.versions import version_of


def usable_cpus() -> int:
    """CPUs this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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
