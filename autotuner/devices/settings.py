"""What a backend needs to know, apart from the backend itself: the driver passes it on without importing torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotuner.build.family import Kernel
from autotuner.devices.toolchain import CudaToolchain, Toolchain
from autotuner.values.model import Model

if TYPE_CHECKING:
    from autotuner.devices.cpu.device import CpuBackend
    from autotuner.devices.cuda.device import CudaBackend


class CpuSettings(Model):
    """Settings of the CPU backend."""

    toolchain: Toolchain
    kernel: Kernel
    cache_bytes: int


class CudaSettings(Model):
    """Settings of the CUDA backend."""

    toolchain: CudaToolchain
    kernel: Kernel


def make_cpu_backend(settings: CpuSettings) -> CpuBackend:
    """The CPU backend, made in the process that will use it."""
    from autotuner.devices.cpu.device import CpuBackend

    return CpuBackend(settings)


def make_cuda_backend(settings: CudaSettings) -> CudaBackend:
    """The CUDA backend, made in the process that will use it."""
    from autotuner.devices.cuda.device import CudaBackend

    return CudaBackend(settings)
