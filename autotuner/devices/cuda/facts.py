"""What GPUs there are, and which of them a sweep runs on."""

import contextlib
import re
from collections.abc import Sequence
from pathlib import Path

from autotuner.devices.cuda import probe, triton
from autotuner.devices.cuda.architecture import architecture
from autotuner.devices.cuda.probe import CudaFacts, probe_all
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
    found = _lacking() or probe.probe()
    return None if isinstance(found, CudaFacts) else found


def begin() -> None:
    """Has the driver asked, where all else is there."""
    if _lacking() is None:
        with contextlib.suppress(OSError):  # whoever waits for the answer is told
            probe.begin()


def _lacking() -> str | None:
    if version_of("torch").endswith("+cpu"):
        return "torch is built without CUDA"
    return "there is no nvcc" if config.nvcc() is None else None


def choose(wishes: Wishes) -> Chosen:
    """The GPUs that were asked for, or the first one here; or an architecture that is not here.

    Raises InputError when there is none.
    """
    if wishes.devices is None and wishes.arch is not None:
        return Chosen(cuda_device(wishes.arch))
    found = chosen_devices(wishes.devices)
    uuids = tuple(each.uuid for each in found.values())
    lanes = (None,) if wishes.devices is None else uuids
    device = cuda_device(wishes.arch, next(iter(found.values())))
    return Chosen(device, lanes, locks=uuids, words=tuple(f"cuda:{number}" for number in found))


def chosen_devices(wanted: str | None) -> dict[int, CudaFacts]:
    """The GPUs that a user names, by number: "all", or numbers among those that a process sees, such as
    "cuda:0,cuda:1"; the first if nothing was said. They are of one model.

    Raises InputError when there is no GPU, and as `of_one_model` does.
    """
    found = probe_all()
    if isinstance(found, str):
        raise InputError(f"no GPU: {found}; give --arch (such as sm_90) where a command can do without one")
    return of_one_model(wanted, found)


def of_one_model(wanted: str | None, found: Sequence[CudaFacts]) -> dict[int, CudaFacts]:
    """As `chosen_devices`, of the GPUs `found`. Raises InputError for what cannot be chosen, with the remedy."""
    names = [f"cuda:{number}" for number in range(len(found))]
    named = names if wanted == "all" else ("cuda:0" if wanted is None else wanted).split(",")
    chosen: dict[int, CudaFacts] = {}
    for name in map(str.strip, named):
        if re.fullmatch(r"cuda:[0-9]{1,4}", name) is None:
            raise InputError(f"--devices {wanted}: write all, or numbers such as cuda:0,cuda:1")
        number = int(name.removeprefix("cuda:"))
        if number >= len(found):
            there = "cuda:0 only" if len(found) == 1 else f"cuda:0 to {names[-1]}"
            raise InputError(f"--devices {wanted}: there is no cuda:{number} here, but {there}")
        if number in chosen:
            raise InputError(f"--devices {wanted}: cuda:{number} is there twice; name each once")
        chosen[number] = found[number]
    models = {chosen[number].name: number for number in sorted(chosen, reverse=True)}
    if len(models) > 1:
        (one, first), (other, second) = sorted(models.items(), key=lambda model: model[1])[:2]
        why = f"never two GPU models in one study: cuda:{first} is an {one}, cuda:{second} an {other}"
        raise InputError(f"--devices {wanted}: {why}; name those of one model")
    return chosen


def cuda_device(target: str | None = None, found: CudaFacts | None = None) -> Device:
    """That GPU, or the one that a process sees first; with `target` (sm_80, ...) that architecture, whatever device is
    here.

    Raises InputError when there is no device, or one of an architecture that is not known.
    """
    if target is not None:
        facts = {**architecture(target).facts(), "CUBLAS": has_cublas(), "TRITON": triton.is_usable()}
        return Device(backend="cuda", name=target, facts=facts, environment=environment())
    found = found or chosen_devices(None)[0]
    facts = {
        **architecture(f"sm_{found.sm}").facts(),
        "MULTIPROCESSORS": found.multiprocessors,
        "CUBLAS": has_cublas(),
        "TRITON": triton.is_usable(),
    }
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
