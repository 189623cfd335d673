"""What CPU this is."""

from __future__ import annotations

import platform

from autotuner.devices.cpu.machine import cpu_facts
from autotuner.devices.environment import environment, usable_cpus
from autotuner.devices.kind import Chosen, Wishes
from autotuner.values.errors import InputError
from autotuner.values.outcome import Device
from autotuner.values.processor import processor


def choose(wishes: Wishes) -> Chosen:
    """This machine's CPU. Raises InputError when it has fewer CPUs than threads are asked for."""
    cpus = usable_cpus()
    threads = wishes.threads or cpus
    if threads > cpus:
        raise InputError(f"threads: {threads} asked for, this machine has {cpus} CPUs for us")
    device = Device(backend="cpu", name=_cpu_name(), facts=cpu_facts(threads), environment=environment())
    return Chosen(device)


def _cpu_name() -> str:
    """The processor's name with what tells models of one name apart: family, model, stepping."""
    fields = processor()
    if not fields:
        return platform.processor() or platform.machine()
    name = " ".join(fields.get("model name", platform.machine()).split())
    numbers = [fields[key] for key in ("cpu family", "model", "stepping") if key in fields]
    return f"{name} ({'.'.join(numbers)})" if numbers else name
