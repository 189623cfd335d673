"""G8 on CUDA: the artifact as it is under NVIDIA's compute-sanitizer, in a process that is this module:

    python -m autotuner.devices.cuda.sanitizer JOB PROGRESS

There is no torch in it: its allocator would put all tensors into one allocation, in which an access past the end of one
looks like an access to another. Here each tensor is an allocation of the driver of exactly its size.

PROGRESS gets a line when the process is ready, after each case that was done, and for a status other than 0.
"""

import contextlib
import ctypes
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from autotuner.devices.cuda.errors import CUDA_ERRORS
from autotuner.devices.sanitized_inputs import FILLED, bare, draw, output_bytes
from autotuner.forge.loaded_variant import DEVICE_ERROR, LoadedVariant
from autotuner.gate.check import Unavailable
from autotuner.gate.sanitizer import DONE, MEMORY, RACE, READY, STATUS, SanitizerCheck, has_summary
from autotuner.ops import op_of
from autotuner.values import config
from autotuner.values.model import Model
from autotuner.values.outcome import Artifact
from autotuner.values.problem import Problem

FLAGS = ("--check-exit-code", "no", "--print-limit", "20")
TOOLS = {
    # Without padding, allocations of whole granules touch, and what is past the end of one belongs to the next.
    MEMORY.code: ("--tool", "memcheck", "--padding", "1024", "--report-api-errors", "no"),
    RACE.code: ("--tool", "racecheck"),
}
RUNS = 2
"""Of each case."""


class Job(Model):
    """What the process is to run."""

    artifact: Artifact
    cases: tuple[Problem, ...]


class CudaSanitizer:
    """compute-sanitizer, where it is installed."""

    errors = CUDA_ERRORS

    def command(self, level: SanitizerCheck, artifact: Artifact, cases: Sequence[Problem], folder: Path) -> list[str]:
        tool = config.compute_sanitizer()
        if tool is None:
            raise Unavailable("no compute-sanitizer: neither beside nvcc, nor on the PATH, nor installed by pip")
        job = folder / "job.json"
        job.write_text(Job(artifact=artifact, cases=tuple(cases)).model_dump_json())
        process = [sys.executable, "-m", __name__, str(job), str(folder / "progress")]
        return [tool, *TOOLS[level.code], *FLAGS, *process]

    def is_finished(self, output: str) -> bool:
        return has_summary(output)


class DeviceError(Exception):
    """A function of the driver failed, with this number."""

    def __init__(self, function: str, number: int) -> None:
        super().__init__(f"{function} failed with error {number}")
        self.number = number


class BareDevice:
    """The first device, through libcuda alone. Raises OSError where there is no libcuda, DeviceError on any error."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuInit", ctypes.c_uint(0))
        self.call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(0))
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)
        self.free(self.filled(1, 0))  # where memory cannot be had, it is known before a variant runs

    def call(self, function: str, *arguments: object) -> None:
        """Each argument has its C type."""
        number = int(self._library[function](*arguments))
        if number:
            raise DeviceError(function, number)

    def filled(self, size: int, byte: int) -> int:
        """The address of an allocation of exactly `size` bytes; 0 for none."""
        address = ctypes.c_uint64(0)
        if size:
            self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
            self.call("cuMemsetD8_v2", address, ctypes.c_ubyte(byte), ctypes.c_size_t(size))
        return address.value

    def holding(self, contents: bytes) -> int:
        """The address of an allocation with these contents."""
        address = self.filled(len(contents), 0)
        self.call("cuMemcpyHtoD_v2", ctypes.c_uint64(address), contents, ctypes.c_size_t(len(contents)))
        return address

    def free(self, *addresses: int) -> None:
        for address in filter(None, addresses):
            self.call("cuMemFree_v2", ctypes.c_uint64(address))

    def finish(self) -> None:
        """Waits for all that was launched."""
        self.call("cuCtxSynchronize")


def forward(device: BareDevice, variant: LoadedVariant, problem: Problem) -> int:
    """The status of the first of RUNS forwards that does not succeed, else 0."""
    inputs = tuple(device.holding(each) for each in draw(problem))
    outputs = tuple(device.filled(size, FILLED) for size in output_bytes(problem))
    wanted = variant.workspace_bytes(problem)
    workspace = device.filled(wanted, FILLED)
    op = op_of(problem)
    given = bare(problem, op.inputs(problem), inputs, "cuda")
    written = bare(problem, op.outputs(problem), outputs, "cuda")
    for _ in range(RUNS):
        status = variant.run(problem, given, written, workspace, wanted)
        if status:
            return status
        device.finish()
    device.free(*inputs, *outputs, workspace)
    return 0


def load_cublas() -> None:
    """Loads the cuBLAS that comes with torch, if any: in a process with torch a variant finds it loaded."""
    for library in (found for folder in config.pip_toolkits() for found in (folder / "lib").glob("libcublasLt.so.*")):
        with contextlib.suppress(OSError):
            ctypes.CDLL(str(library))


def run(job: Job, progress: TextIO) -> None:
    """Runs the cases until one fails."""
    load_cublas()
    device, variant = BareDevice(), LoadedVariant(job.artifact)
    print(READY, file=progress, flush=True)
    for problem in job.cases:
        try:
            status = forward(device, variant, problem)
        except DeviceError as error:
            status = DEVICE_ERROR + error.number
        print(f"{STATUS} {status}" if status else DONE, file=progress, flush=True)
        if status:
            return


if __name__ == "__main__":
    with open(sys.argv[2], "w") as lines:
        run(Job.model_validate_json(Path(sys.argv[1]).read_bytes()), lines)
