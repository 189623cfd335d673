"""What a bug report needs of NVIDIA's driver, its GPUs and its compiler. Asks no driver in this process."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from autotuner.devices.cuda.architecture import architecture
from autotuner.devices.cuda.probe import probe_all
from autotuner.devices.cuda.toolchain import CudaToolchain, has_cublas, require_driver
from autotuner.devices.kind import Finding
from autotuner.forge.build import require_compilers
from autotuner.values import config
from autotuner.values.errors import InputError

ANY = "sm_80"
"""What the compiler is tried for where there is no GPU."""
COUNTERS = Path("/proc/driver/nvidia/params")


def findings() -> Iterator[Finding]:
    """Where there is no GPU, what lacks for one stops nothing."""
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
        remedy = "nothing here needs it; for Nsight: the module's option NVreg_RestrictProfilingToAdminUsers=0"
        said = "the GPU's counters are for " + ("administrators" if closed else "everybody")
        yield Finding("Nsight", said, remedy if closed else "", blocks=False)


def _major(version: str) -> int:
    return int(version.partition(".")[0])
