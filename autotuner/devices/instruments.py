"""What the harness itself runs: on a CUDA device the shared-memory fill, a delay, the state of a stream; on a CPU the
multiply-adds that show its peak. Built and loaded like variants, from kernels/instruments."""

from __future__ import annotations

from autotuner.build.build import build
from autotuner.build.family import Kernel
from autotuner.build.loaded_variant import DEVICE_ERROR, Extension, status_text
from autotuner.devices.cuda.architecture import architecture
from autotuner.devices.toolchain import AnyToolchain, CudaToolchain, Toolchain
from autotuner.ops.sdpa.problem import Dtype, Problem
from autotuner.values import config
from autotuner.values.errors import ToolchainError
from autotuner.values.variant import Value, Variant
from autotuner.values.verdict import Fault

STATUS, FILL, SPIN = 1, 2, 3
NOT_READY = DEVICE_ERROR + 600


PEAK_CHAINS, PEAK_STEPS = 12, 1 << 20
"""Independent sums (kernels/instruments/peak.cpp), and multiply-adds of each in a call: a millisecond or a few."""


def _loaded(backend: str, impl: str, parameters: dict[str, Value], dtype: Dtype, toolchain: AnyToolchain) -> Extension:
    """Raises ToolchainError when it cannot be built."""
    kernel = Kernel.load(config.kernels_dir() / "instruments")
    variant = Variant(family="instruments", backend=backend, impl=impl, parameters=parameters)
    problem = Problem(batch=1, heads=1, seq_q=1, seq_k=1, head_dim=64, dtype=dtype)
    built = build(kernel, variant, problem, toolchain)
    if isinstance(built, Fault):
        raise ToolchainError(f"the instruments cannot be built: {built.detail}")
    return Extension(built)


class PeakInstrument:
    """Multiply-adds that wait for nothing, on one CPU."""

    flops = 2 * PEAK_CHAINS * PEAK_STEPS
    """Operations a call."""

    def __init__(self, toolchain: Toolchain) -> None:
        """Raises ToolchainError when it cannot be built."""
        self._extension = _loaded("cpu", "peak", {}, "float32", toolchain)

    def __call__(self) -> None:
        self._extension.command((PEAK_STEPS,), 0)


class Instruments:
    """Those for a CUDA device."""

    def __init__(self, toolchain: CudaToolchain, multiprocessors: int) -> None:
        """Raises ToolchainError when they cannot be built."""
        shared = architecture(toolchain.architecture).shared_limit
        self._extension = _loaded("cuda", "instruments", {"SHARED_BYTES": shared}, "float16", toolchain)
        self._multiprocessors = multiprocessors

    def status(self, stream: int) -> int:
        """0 when all work of the stream is done, NOT_READY before, else DEVICE_ERROR + the driver's error."""
        return self._extension.command((STATUS,), stream)

    def fill_shared(self, word: int, stream: int) -> None:
        """Writes the word over the shared memory of every multiprocessor."""
        self._launched(self._extension.command((FILL, self._multiprocessors, word + 1), stream))

    def spin(self, nanoseconds: int, stream: int) -> None:
        """Keeps the stream busy for so long."""
        self._launched(self._extension.command((SPIN, nanoseconds), stream))

    def _launched(self, status: int) -> None:
        if status:
            raise RuntimeError(f"an instrument could not be launched: {status_text(status)}")
