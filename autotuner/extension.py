"""A built variant, loaded: the Python side of kernels/abi/binding.cpp. Addresses in, status out; no torch here."""

from __future__ import annotations

import importlib.util
from importlib.machinery import ExtensionFileLoader
from types import ModuleType
from typing import NamedTuple

from autotuner.outcome import Artifact
from autotuner.problem import Problem

STATUS = {0: "ok", 1: "outside the variant's domain", 2: "workspace missing or too small", 3: "no threads"}
DEVICE_ERROR = 1000


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

    def identity(self) -> Identity:
        """What the binary reports of itself, read from the loaded library."""
        abi_version, call_size, build_id, text = self._module.identity()
        macros = dict(line.split("=", 1) for line in text.splitlines())
        return Identity(abi_version, call_size, build_id, macros)

    def workspace_bytes(self, problem: Problem) -> int:
        """Bytes of workspace one forward needs."""
        return int(self._module.workspace(_dims(problem), (problem.scale,)))

    def run(
        self, problem: Problem, inputs: tuple[int, int, int], output: int, workspace: int, workspace_bytes: int
    ) -> int:
        """One forward on raw addresses; returns the variant's status (see STATUS).

        Raises ValueError when an address is misaligned (16 bytes for tensors, 64 for the workspace).
        """
        scalars = (problem.scale,)
        return int(self._module.run(inputs, (output,), _dims(problem), scalars, workspace, workspace_bytes, 0))


def _dims(problem: Problem) -> tuple[int, int, int, int]:
    return (problem.batch, problem.heads, problem.seq_q, problem.seq_k)


def status_text(status: int) -> str:
    """A variant's status in words."""
    if status >= DEVICE_ERROR:
        return f"device error {status - DEVICE_ERROR}"
    return STATUS.get(status, f"unknown status {status}")
