"""What the harness itself runs on a CUDA device: the shared-memory fill, a delay, the state of a stream."""

from __future__ import annotations

from autotuner import config
from autotuner.architecture import architecture
from autotuner.build import build
from autotuner.errors import ToolchainError
from autotuner.extension import DEVICE_ERROR, Extension, status_text
from autotuner.kernel import Kernel
from autotuner.problem import Problem
from autotuner.toolchain import CudaToolchain
from autotuner.variant import Variant
from autotuner.verdict import Fault

STATUS, FILL, SPIN = 1, 2, 3
NOT_READY = DEVICE_ERROR + 600


class Instruments:
    """kernels/instruments, built and loaded like a variant."""

    def __init__(self, toolchain: CudaToolchain, multiprocessors: int) -> None:
        """Raises ToolchainError when they cannot be built."""
        kernel = Kernel.load(config.kernels_dir() / "instruments")
        shared = architecture(toolchain.architecture).shared_limit
        variant = Variant(family="instruments", backend="cuda", impl="instruments", parameters={"SHARED_BYTES": shared})
        problem = Problem(batch=1, heads=1, seq_q=1, seq_k=1, head_dim=64, dtype="float16")
        built = build(kernel, variant, problem, toolchain)
        if isinstance(built, Fault):
            raise ToolchainError(f"the instruments of the gate cannot be built: {built.detail}")
        self._extension, self._multiprocessors = Extension(built), multiprocessors

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
