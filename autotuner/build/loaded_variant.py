"""A built variant, loaded: the Python side of kernels/abi/binding.cpp. Addresses in, status out; no torch here."""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
from importlib.machinery import ExtensionFileLoader
from types import ModuleType
from typing import NamedTuple

from autotuner.ops.sdpa.problem import Problem
from autotuner.values.outcome import Artifact
from autotuner.values.verdict import SystemFault

STATUS = {0: "ok", 1: "outside the variant's domain", 2: "workspace missing or too small", 3: "no threads"}
DEVICE_ERROR = 1000
DEVICE_ERRORS = {
    1: "invalid value",
    2: "out of memory",
    100: "no device",
    201: "invalid context",
    209: "no kernel image for the device",
    226: "a contained exception",
    500: "not found",
    600: "not ready",
    700: "illegal address",
    701: "launch out of resources",
    702: "launch timeout",
    710: "assertion on the device",
    714: "hardware stack error",
    715: "illegal instruction",
    716: "misaligned address",
    717: "invalid address space",
    718: "invalid program counter",
    719: "launch failure",
    721: "tensor memory leak",
    801: "not supported",
    810: "the multi-process service ended the client",
    900: "not supported while a stream is captured",
    911: "external device failure",
}
"""Errors of the CUDA driver by number (CUresult in cuda.h), in words."""

CUBLAS = 2000
"""Above this an error is this plus a status of cuBLAS (kernels/sdpa/cublas_host.cpp)."""

STICKY = frozenset({226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911})
"""Errors after which the process can do nothing more on the device."""


class Identity(NamedTuple):
    """What the binary says it is."""

    abi_version: int
    call_size: int
    build_id: str
    macros: dict[str, str]


class Extension:
    """One loaded artifact. Loading the same artifact twice gives two independent modules only under two paths."""

    def __init__(self, artifact: Artifact) -> None:
        """Raises ImportError when the library cannot be loaded under its unique name."""
        loader = ExtensionFileLoader(artifact.name, artifact.path)
        spec = importlib.util.spec_from_file_location(artifact.name, artifact.path, loader=loader)
        assert spec is not None
        self._module: ModuleType = importlib.util.module_from_spec(spec)
        loader.exec_module(self._module)

    @classmethod
    def second(cls, artifact: Artifact) -> Extension:
        """The same library loaded once more: under another path, since the loader shares one path's image."""
        with tempfile.TemporaryDirectory(prefix="autotuner-copy-") as folder:
            copy = shutil.copy(artifact.path, folder)
            return cls(artifact.model_copy(update={"path": copy}))

    def identity(self) -> Identity:
        """What the binary reports of itself, read from the loaded library."""
        abi_version, call_size, build_id, text = self._module.identity()
        macros = dict(line.split("=", 1) for line in text.splitlines())
        return Identity(abi_version, call_size, build_id, macros)

    def workspace_bytes(self, problem: Problem) -> int:
        """Bytes of workspace one forward needs."""
        return int(self._module.workspace(_dims(problem), (problem.scale,)))

    def run(
        self,
        problem: Problem,
        inputs: tuple[int, int, int],
        output: int,
        workspace: int,
        workspace_bytes: int,
        stream: int = 0,
    ) -> int:
        """One forward on raw addresses; returns the variant's status (see STATUS). On CUDA it is only launched.

        Raises ValueError when an address is misaligned (16 bytes for tensors, 64 for the workspace).
        """
        scalars = (problem.scale,)
        return int(self._module.run(inputs, (output,), _dims(problem), scalars, workspace, workspace_bytes, stream))

    def command(self, numbers: tuple[int, ...], stream: int) -> int:
        """A call without tensors, for the harness's own instruments; each number is at least 1."""
        return int(self._module.run((), (), numbers, (), 0, 0, stream))


def _dims(problem: Problem) -> tuple[int, int, int, int]:
    return (problem.batch, problem.heads, problem.seq_q, problem.seq_k)


def status_text(status: int) -> str:
    """A variant's status in words."""
    if status >= DEVICE_ERROR:
        number = status - DEVICE_ERROR
        if number > CUBLAS:
            return f"cuBLAS status {number - CUBLAS} (see cublasStatus_t in cublas_api.h)"
        return f"device error {number} ({DEVICE_ERRORS.get(number, 'see CUresult in cuda.h')})"
    return STATUS.get(status, f"unknown status {status}")


def system_fault(status: int) -> SystemFault:
    """A variant's status as the report keeps it: a device error by the driver's own number."""
    number = status - DEVICE_ERROR if DEVICE_ERROR <= status <= DEVICE_ERROR + CUBLAS else status
    return SystemFault(number=number, name=status_text(status), sticky=is_sticky(status))


def is_sticky(status: int) -> bool:
    """True when the status is a device error that outlives the call."""
    return status - DEVICE_ERROR in STICKY
