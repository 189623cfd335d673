"""What CPU this is."""

from __future__ import annotations

import platform
import re
from pathlib import Path

from autotuner.devices.environment import environment, usable_cpus
from autotuner.devices.kind import Chosen, Wishes
from autotuner.values.errors import InputError
from autotuner.values.outcome import Device
from autotuner.values.variant import Value


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
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or platform.machine()
    fields = dict(re.findall(r"^([^\t:]+)\s*:\s*(.*)$", text.split("\n\n")[0], re.MULTILINE))
    name = " ".join(fields.get("model name", platform.machine()).split())
    numbers = [fields[key] for key in ("cpu family", "model", "stepping") if key in fields]
    return f"{name} ({'.'.join(numbers)})" if numbers else name


def _cpu_flags() -> set[str]:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return set()
    found = re.search(r"^(?:flags|Features)\s*:\s*(.*)$", text, re.MULTILINE)
    return set(found[1].split()) if found else set()


def _cache_bytes(level: int) -> int:
    """Size of the data or unified cache of that level that the first CPU sees; 0 when the system does not say."""
    for index in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        try:
            if int((index / "level").read_text()) == level and (index / "type").read_text().strip() != "Instruction":
                size = (index / "size").read_text().strip()
                return int(size[:-1]) * {"K": 1 << 10, "M": 1 << 20}[size[-1]]
        except (OSError, ValueError, KeyError):
            continue
    return 0


def cpu_facts(threads: int) -> dict[str, Value | bool]:
    """What the constraints of a CPU space may say about the machine."""
    flags = _cpu_flags()
    vector = 64 if "avx512f" in flags else 32 if "avx2" in flags else 16
    return {
        "THREADS_ALLOWED": threads,
        "CPU_VECTOR_BYTES": vector,
        "CPU_FMA": "fma" in flags or "asimd" in flags,
        "CPU_BF16_DOT": "avx512_bf16" in flags,
        "L1D_BYTES": _cache_bytes(1),
        "L2_BYTES": _cache_bytes(2),
        "L3_BYTES": _cache_bytes(3),
    }
