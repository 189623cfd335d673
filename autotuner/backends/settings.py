"""What a backend needs to know, apart from the backend itself: the driver passes it on without importing torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotuner.kernel import Kernel
from autotuner.model import Model
from autotuner.toolchain import CudaToolchain, Toolchain

if TYPE_CHECKING:
    from autotuner.backends.cpu import CpuBackend
    from autotuner.backends.cuda import CudaBackend


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
    from autotuner.backends.cpu import CpuBackend

    return CpuBackend(settings)


def make_cuda_backend(settings: CudaSettings) -> CudaBackend:
    """The CUDA backend, made in the process that will use it."""
    from autotuner.backends.cuda import CudaBackend

    return CudaBackend(settings)
