"""What the harness itself runs on a GPU: the shared-memory fill, a delay, the state of a stream. Built and loaded like
variants, from kernels/instruments."""

from autotuner.devices.cuda.architecture import architecture
from autotuner.devices.cuda.errors import CUDA_ERRORS
from autotuner.devices.cuda.toolchain import CudaToolchain
from autotuner.forge.build import build_instrument
from autotuner.forge.loaded_variant import DEVICE_ERROR, LoadedVariant
from autotuner.forge.toolchain import Toolchain
from autotuner.values.outcome import Artifact

STATUS, FILL, SPIN = 1, 2, 3
NOT_READY = DEVICE_ERROR + 600


def make_instruments(toolchain: Toolchain) -> Artifact:
    """Their library. Raises ToolchainError when they cannot be built."""
    assert isinstance(toolchain, CudaToolchain)
    parameters = {"SHARED_BYTES": architecture(toolchain.architecture).shared_limit}
    return build_instrument("cuda", "instruments", parameters, toolchain)


class Instruments:
    """Those for a CUDA device."""

    def __init__(self, toolchain: CudaToolchain, multiprocessors: int) -> None:
        """Raises ToolchainError when they cannot be built."""
        self._variant = LoadedVariant(make_instruments(toolchain))
        self._multiprocessors = multiprocessors

    def status(self, stream: int) -> int:
        """0 when all work of the stream is done, NOT_READY before, else DEVICE_ERROR + the driver's error."""
        return self._variant.command((STATUS,), stream)

    def fill_shared(self, word: int, stream: int) -> None:
        """Writes the word over the shared memory of every multiprocessor."""
        self._launched(self._variant.command((FILL, self._multiprocessors, word + 1), stream))

    def spin(self, nanoseconds: int, stream: int) -> None:
        """Keeps the stream busy for this long."""
        self._launched(self._variant.command((SPIN, nanoseconds), stream))

    def _launched(self, status: int) -> None:
        if status:
            raise RuntimeError(f"an instrument could not be launched: {CUDA_ERRORS.text(status)}")
