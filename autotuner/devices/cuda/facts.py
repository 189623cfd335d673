"""What GPUs there are, and which of them a sweep runs on."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from autotuner.devices.cuda.architecture import architecture
from autotuner.devices.cuda.probe import CudaFacts, probe, probe_all
from autotuner.devices.cuda.toolchain import has_cublas
from autotuner.devices.environment import environment
from autotuner.devices.kind import Chosen, Wishes
from autotuner.values import config
from autotuner.values.errors import InputError
from autotuner.values.outcome import Device
from autotuner.values.versions import version_of

SHOWN_BY = "CUDA_VISIBLE_DEVICES"
"""Which GPUs a process sees."""


def missing() -> str | None:
    """Why no GPU can be tuned for here, in words: torch, compiler and driver must all be there."""
    if version_of("torch").endswith("+cpu"):
        return "torch is built without CUDA"
    if config.nvcc() is None:
        return "there is no nvcc"
    found = probe()
    return None if isinstance(found, CudaFacts) else found


def choose(wishes: Wishes) -> Chosen:
    """The GPUs that were asked for, or the first one here; or an architecture that is not here.

    Raises InputError when there is none.
    """
    if wishes.devices is None and wishes.arch is not None:
        return Chosen(cuda_device(wishes.arch))
    found = chosen_devices(wishes.devices)
    uuids = tuple(each.uuid for each in found)
    lanes = (None,) if wishes.devices is None else uuids
    return Chosen(cuda_device(wishes.arch, found[0]), lanes, locks=uuids, words=_words(wishes.devices, len(found)))


def chosen_devices(wanted: str | None) -> tuple[CudaFacts, ...]:
    """The GPUs that a user names: "all", or numbers among those that a process sees, such as "cuda:0,cuda:1"; the first
    if nothing was said. They are of one model.

    Raises InputError when there is no GPU, and as `of_one_model` does.
    """
    found = probe_all()
    if isinstance(found, str):
        raise InputError(f"no GPU: {found}; give --arch (such as sm_90) where a command can do without one")
    return of_one_model(wanted, found)


def of_one_model(wanted: str | None, found: Sequence[CudaFacts]) -> tuple[CudaFacts, ...]:
    """As `chosen_devices`, of the GPUs `found`. Raises InputError for what cannot be chosen, with the remedy."""
    numbers = _numbers(wanted, len(found))
    models = {found[number].name: number for number in reversed(numbers)}
    if len(models) > 1:
        (one, first), (other, second) = sorted(models.items(), key=lambda model: model[1])[:2]
        why = f"never two GPU models in one study: cuda:{first} is an {one}, cuda:{second} an {other}"
        raise InputError(f"--devices {wanted}: {why}; name those of one model")
    return tuple(found[number] for number in numbers)


def _words(wanted: str | None, count: int) -> tuple[str, ...]:
    """What `--devices` calls each of `count` chosen devices."""
    if wanted == "all":
        return tuple(f"cuda:{number}" for number in range(count))
    return tuple(name.strip() for name in (wanted or "cuda:0").split(","))


def _numbers(wanted: str | None, count: int) -> list[int]:
    """The numbers of the devices that were named, of `count` in the machine."""
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
        facts = {**architecture(target).facts(), "CUBLAS": has_cublas()}
        return Device(backend="cuda", name=target, facts=facts, environment=environment())
    found = found or chosen_devices(None)[0]
    facts = {**architecture(f"sm_{found.sm}").facts(), "MULTIPROCESSORS": found.multiprocessors, "CUBLAS": has_cublas()}
    around = {
        **environment(),
        "driver": found.driver,
        "driver_module": _driver_module(),
        "multiprocessors": str(found.multiprocessors),
        "l2_bytes": str(found.l2_bytes),
    }
    return Device(backend="cuda", name=found.name, facts=facts, environment=around)


def _driver_module() -> str:
    """The release of NVIDIA's kernel module, such as 580.95.05; "" where the system does not say."""
    try:
        text = Path("/proc/driver/nvidia/version").read_text()
    except OSError:
        return ""
    found = re.search(r"Kernel Module.*?\s(\d+(?:\.\d+)+)", text)
    return found[1] if found else ""
