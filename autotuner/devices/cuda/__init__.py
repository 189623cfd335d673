"""NVIDIA GPUs as a kind of device: CUDA variants, built by nvcc for the GPU's architecture."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotuner.devices.cpu import COPIED
from autotuner.devices.cuda.architecture import architecture
from autotuner.devices.cuda.counters import REMEDY, count
from autotuner.devices.cuda.facts import SHOWN_BY, begin, choose, missing
from autotuner.devices.cuda.instruments import make_instruments
from autotuner.devices.cuda.probe import probe_all
from autotuner.devices.cuda.toolchain import CudaToolchain, has_cublas, require_driver
from autotuner.devices.environment import builders, usable_cpus
from autotuner.devices.kind import Cage, Chosen, DeviceKind, Finding, Packaging
from autotuner.forge.build import require_compilers
from autotuner.forge.toolchain import Toolchain
from autotuner.values import config
from autotuner.values.errors import InputError
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


ANY = "sm_80"
"""What the compiler is tried for where there is no GPU."""
COUNTERS = Path("/proc/driver/nvidia/params")


def findings() -> Iterator[Finding]:
    """What a bug report needs of NVIDIA's driver, its GPUs and its compiler. Where there is no GPU, what lacks for one
    stops nothing."""
    found = probe_all()
    gpus = () if isinstance(found, str) else found
    if isinstance(found, str):
        yield Finding("GPU", found, "none is needed to tune for the CPU; for one install NVIDIA's driver", blocks=False)
    for number, gpu in enumerate(gpus):
        yield Finding(f"cuda:{number}", f"{gpu.name}, sm_{gpu.sm}, {gpu.uuid}; its driver is for CUDA {gpu.driver}")
    try:
        toolchain = CudaToolchain.discover(architecture(f"sm_{gpus[0].sm}" if gpus else ANY))
        require_compilers(toolchain)
        require_driver(toolchain, gpus[0].driver if gpus else None)
        yield Finding("nvcc", f"{toolchain.nvcc}: {toolchain.version}; it works")
        if not has_cublas():
            remedy = "IMPL=cublas is left out; install cuBLAS's headers with the toolkit"
            yield Finding("cuBLAS", "cublasLt.h is not beside nvcc", remedy, blocks=False)
    except InputError as error:
        yield Finding.refused("nvcc", error, blocks=bool(gpus))
    yield _torch(gpus[0].driver if gpus else None)
    if gpus:
        tool = config.compute_sanitizer()
        remedy = "without it G8 is left out; install it with the CUDA toolkit"
        yield Finding("compute-sanitizer", tool or "not found", "" if tool else remedy, blocks=False)
        yield from _counters()


def torch_cuda() -> str | None:
    """The CUDA version that torch is built for; None: for none. Torch is not imported: that takes seconds."""
    spec = find_spec("torch")
    text = (Path(str(spec.origin)).parent / "version.py").read_text() if spec is not None else ""
    said = re.search(r"^cuda\b[^=]*= ['\"]([\d.]+)", text, re.MULTILINE)
    return said[1] if said else None


def _torch(driver: str | None) -> Finding:
    built = torch_cuda()
    said = f"torch is built for {f'CUDA {built}' if built else 'the CPU alone'}"
    if driver is None or (built is not None and _major(built) <= _major(driver)):
        return Finding("torch's CUDA", said)
    older = f"{driver.partition('.')[0]} or older" if built else driver
    return Finding(
        "torch's CUDA", f"{said}, the driver for CUDA {driver}", f"install torch for CUDA {older} (pytorch.org)"
    )


def _counters() -> Iterator[Finding]:
    """Whether Nsight may read the GPU's counters."""
    if COUNTERS.is_file():
        closed = "RmProfilingAdminOnly: 1" in COUNTERS.read_text()
        remedy = f"`autotuner profile` alone needs them: {REMEDY}"
        said = "the GPU's counters are for " + ("administrators" if closed else "everybody")
        yield Finding("Nsight", said, remedy if closed else "", blocks=False)


def _major(version: str) -> int:
    return int(version.partition(".")[0])


DEVICE = DeviceKind(
    name="cuda",
    preference=1,
    choices=frozenset({"arch", "devices"}),
    missing=missing,
    begin=begin,
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
    make_ready=make_instruments,
    jobs_per_process=250,
    findings=findings,
    counted=count,
    who_disturbs=_who_disturbs,
)
