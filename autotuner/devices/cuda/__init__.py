"""NVIDIA GPUs as a kind of device: CUDA variants, built by nvcc for the GPU's architecture."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from autotuner.devices.cpu import COPIED
from autotuner.devices.cuda import checkup
from autotuner.devices.cuda.architecture import architecture
from autotuner.devices.cuda.facts import SHOWN_BY, choose, missing
from autotuner.devices.cuda.toolchain import CudaToolchain, require_driver
from autotuner.devices.environment import builders, usable_cpus
from autotuner.devices.kind import Cage, Chosen, DeviceKind, Packaging
from autotuner.forge.toolchain import Toolchain
from autotuner.values.outcome import Device
from autotuner.values.problem import ITEM_BYTES
from autotuner.values.variant import Value

if TYPE_CHECKING:
    from autotuner.devices.process import DeviceProcess


def _toolchain(device: Device) -> Toolchain:
    found = CudaToolchain.discover(architecture(f"sm_{device.facts['SM']}"))
    require_driver(found, device.environment.get("driver"))
    return found


def _open(toolchain: Toolchain, device: Device) -> DeviceProcess:
    from autotuner.devices.cuda.device import CudaProcess

    assert isinstance(toolchain, CudaToolchain)
    return CudaProcess(toolchain)


def _who_disturbs(chosen: Chosen) -> str:
    from autotuner.devices.cuda.nvml import who_disturbs

    return who_disturbs(chosen.locks)


def _builders(lanes: int) -> int:
    """All CPUs but one for each device, which launches and times."""
    return max(1, min(builders(), usable_cpus() - lanes))


def _facts_in_torch() -> Mapping[str, Value | bool] | None:
    import torch

    if not torch.cuda.is_available():
        return None
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return {"SM": 10 * properties.major + properties.minor, "MULTIPROCESSORS": properties.multi_processor_count}


def _build_name(toolchain: Toolchain) -> str:
    """nvcc's major and minor version: cu130."""
    release = re.search(r"release (\d+)\.(\d+)", toolchain.version)
    assert release is not None
    return f"cu{release[1]}{release[2]}"


def _versions() -> dict[str, str]:
    import torch

    if not torch.cuda.is_available():
        return {}
    return {"cuda": str(torch.version.cuda), "cudnn": str(torch.backends.cudnn.version())}


def _needs(host: bytes) -> str | None:
    return "cuBLAS" if b"cublasLt" in host else None


def _backend(facts: Mapping[str, Value | bool]) -> dict[str, Any]:
    return {"type": "cuda", "archs": [f"{int(facts['SM']) / 10:.1f}"]}


DEVICE = DeviceKind(
    name="cuda",
    preference=1,
    choices=frozenset({"arch", "devices"}),
    missing=missing,
    choose=choose,
    toolchain=_toolchain,
    module=f"{__name__}.device",
    open=_open,
    proven_by=("SM", "MULTIPROCESSORS"),
    facts_in_torch=_facts_in_torch,
    packaging=Packaging(_build_name, _backend, accelerator=True, copied=COPIED, needs=_needs),
    cage=Cage(
        reads=("/opt/nvidia*",),
        writes=("/dev/nvidia*", "/dev/dri", "/dev/dxg", "/dev/shm", "/tmp/nvidia-mps", "/run/nvidia-*"),
        memory=False,  # the driver reserves more than there is
        processes=False,  # torch's compiler calls others when it loads what it has compiled
        compiles=tuple(ITEM_BYTES),
        tools=False,  # the sanitizer's parts speak to each other through sockets of the network
    ),
    builders=_builders,
    shown_by=SHOWN_BY,
    versions=_versions,
    cluster_unit="GPU",
    overlap=True,
    jobs_per_process=250,
    findings=checkup.findings,
    who_disturbs=_who_disturbs,
)
