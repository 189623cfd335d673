"""The process that runs a CUDA artifact under compute-sanitizer: python -m autotuner.gate.sanitized JOB PROGRESS

There is no torch in it: its allocator would put all tensors into one allocation, in which an access past the end of one
looks like an access to another. Here each tensor is an allocation of the driver of exactly its size.

PROGRESS gets a line when the process is ready, after each case that was done, and for a status other than 0.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
from pathlib import Path
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from autotuner.build.loaded_variant import DEVICE_ERROR, Extension
from autotuner.ops.sdpa.problem import Problem
from autotuner.values import config
from autotuner.values.model import Model
from autotuner.values.outcome import Artifact

RUNS = 2
READY, DONE, STATUS = "ready", "done", "status"
"""What the lines of PROGRESS begin with; kernels/abi/sanitize_main.cpp writes the same."""


class Job(Model):
    """What the process is to run."""

    artifact: Artifact
    cases: tuple[Problem, ...]


def draw(problem: Problem) -> tuple[bytes, bytes, bytes]:
    """Q, K and V, standard normal, as the bytes of the element type."""
    generator = np.random.default_rng(1)
    rows = problem.batch * problem.heads * np.array([problem.seq_q, problem.seq_k, problem.seq_k])
    drawn = [generator.standard_normal(count * problem.head_dim, np.float32) for count in rows]
    q, k, v = (_as_bytes(values, problem.dtype) for values in drawn)
    return q, k, v


def _as_bytes(values: NDArray[np.float32], dtype: str) -> bytes:
    if dtype == "bfloat16":  # the upper half of a float32, on a machine that is little-endian
        return values.view(np.uint16)[1::2].tobytes()
    return values.astype(dtype).tobytes()


class DeviceError(Exception):
    """A function of the driver failed, with this number."""

    def __init__(self, function: str, number: int) -> None:
        super().__init__(f"{function} failed with error {number}")
        self.number = number


class Device:
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


def forward(device: Device, extension: Extension, problem: Problem) -> int:
    """The status of the first of RUNS forwards that does not succeed, else 0."""
    inputs = draw(problem)
    q, k, v = (device.holding(each) for each in inputs)
    o = device.filled(len(inputs[0]), 0xFF)  # a NaN in every element type
    wanted = extension.workspace_bytes(problem)
    workspace = device.filled(wanted, 0xFF)
    for _ in range(RUNS):
        status = extension.run(problem, (q, k, v), o, workspace, wanted)
        if status:
            return status
        device.finish()
    device.free(q, k, v, o, workspace)
    return 0


def load_cublas() -> None:
    """Loads the cuBLAS that comes with torch, if any: in a process with torch a variant finds it loaded."""
    for library in (found for folder in config.pip_toolkits() for found in (folder / "lib").glob("libcublasLt.so.*")):
        with contextlib.suppress(OSError):
            ctypes.CDLL(str(library))


def run(job: Job, progress: TextIO) -> None:
    """Runs the cases until one fails."""
    load_cublas()
    device, extension = Device(), Extension(job.artifact)
    print(READY, file=progress, flush=True)
    for problem in job.cases:
        try:
            status = forward(device, extension, problem)
        except DeviceError as error:
            status = DEVICE_ERROR + error.number
        print(f"{STATUS} {status}" if status else DONE, file=progress, flush=True)
        if status:
            return


if __name__ == "__main__":
    with open(sys.argv[2], "w") as lines:
        run(Job.model_validate_json(Path(sys.argv[1]).read_bytes()), lines)
