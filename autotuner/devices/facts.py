"""What machine this is, and the versions that a number depends on. Imports no torch."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from autotuner.devices.cuda.architecture import architecture
from autotuner.devices.cuda.probe import CudaFacts, probe_all
from autotuner.values.errors import InputError
from autotuner.values.outcome import Device
from autotuner.values.variant import Value


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


def usable_cpus() -> int:
    """CPUs this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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


def version_of(package: str) -> str:
    """The installed version of a package; "absent" without it."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "absent"


def _environment() -> dict[str, str]:
    """Versions that any number depends on."""
    return {
        "os": platform.platform(),
        "python": platform.python_version(),
        "torch": version_of("torch"),
        "optuna": version_of("optuna"),
        "autotuner": version_of("autotuner"),
        "cpus": str(usable_cpus()),
    }


def cpu_device(threads: int) -> Device:
    """This machine's CPU as a device that may use `threads` threads."""
    return Device(backend="cpu", name=_cpu_name(), facts=cpu_facts(threads), environment=_environment())


def _driver_module() -> str:
    """The release of NVIDIA's kernel module, such as 580.95.05; "" where the system does not say."""
    try:
        text = Path("/proc/driver/nvidia/version").read_text()
    except OSError:
        return ""
    found = re.search(r"Kernel Module.*?\s(\d+(?:\.\d+)+)", text)
    return found[1] if found else ""


def chosen_devices(wanted: str | None) -> tuple[CudaFacts, ...]:
    """The GPUs that a user names: "all", or numbers among those that a process sees, such as "cuda:0,cuda:1"; the first
    if nothing was said. They are of one model.

    Raises InputError when there is no GPU, and as `choose` does.
    """
    found = probe_all()
    if isinstance(found, str):
        raise InputError(f"no GPU: {found}; give --arch (such as sm_90) where a command can do without one")
    return choose(wanted, found)


def choose(wanted: str | None, found: Sequence[CudaFacts]) -> tuple[CudaFacts, ...]:
    """As `chosen_devices`, of the GPUs `found`. Raises InputError for what cannot be chosen, with the remedy."""
    numbers = _numbers(wanted, len(found))
    models = {found[number].name: number for number in reversed(numbers)}
    if len(models) > 1:
        (one, first), (other, second) = sorted(models.items(), key=lambda model: model[1])[:2]
        why = f"never two GPU models in one study: cuda:{first} is an {one}, cuda:{second} an {other}"
        raise InputError(f"--devices {wanted}: {why}; name those of one model")
    return tuple(found[number] for number in numbers)


def _numbers(wanted: str | None, count: int) -> list[int]:
    """The numbers of the devices that were named, of so many."""
    if wanted is None:
        return [0]
    if wanted == "all":
        return list(range(count))
    named = [re.fullmatch(r"cuda:([0-9]{1,4})", name.strip()) for name in wanted.split(",")]
    numbers = [int(match[1]) for match in named if match is not None]
    if len(numbers) < len(named):
        raise InputError(f"--devices {wanted}: write all, or numbers such as cuda:0,cuda:1")
    for number in numbers:
        if number >= count:
            there = "cuda:0 only" if count == 1 else f"cuda:0 to cuda:{count - 1}"
            raise InputError(f"--devices {wanted}: there is no cuda:{number} here, but {there}")
        if numbers.count(number) > 1:
            raise InputError(f"--devices {wanted}: cuda:{number} is there twice; name each once")
    return numbers


def cuda_device(target: str | None = None, found: CudaFacts | None = None) -> Device:
    """That GPU, or the one that a process sees first; with `target` (sm_80, ...) that architecture, whatever device is
    here.

    Raises InputError when there is no device, or one of an architecture that is not known.
    """
    if target is not None:
        facts = architecture(target).facts()
        return Device(backend="cuda", name=target, facts=facts, environment=_environment())
    found = found or chosen_devices(None)[0]
    facts = {**architecture(f"sm_{found.sm}").facts(), "MULTIPROCESSORS": found.multiprocessors}
    environment = {
        **_environment(),
        "driver": found.driver,
        "driver_module": _driver_module(),
        "multiprocessors": str(found.multiprocessors),
        "l2_bytes": str(found.l2_bytes),
    }
    return Device(backend="cuda", name=found.name, facts=facts, environment=environment)
