"""A built variant, loaded: the Python side of kernels/abi/binding.cpp. Tensors in, status out; no torch here."""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
from collections.abc import Callable
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from autotuner.values.outcome import Artifact
from autotuner.values.problem import Problem


class Reported(NamedTuple):
    """What the binary says it is."""

    abi_version: int
    call_size: int
    build_id: str
    macros: dict[str, str]


class LoadedVariant:
    """One loaded artifact. Loading the same artifact twice gives two independent modules only under two paths."""

    def __init__(self, artifact: Artifact) -> None:
        """Raises ImportError when the library cannot be loaded under its unique name."""
        loader = ExtensionFileLoader(artifact.name, artifact.path)
        spec = importlib.util.spec_from_file_location(artifact.name, artifact.path, loader=loader)
        assert spec is not None
        self._module: ModuleType = importlib.util.module_from_spec(spec)
        loader.exec_module(self._module)

    @classmethod
    def second(cls, artifact: Artifact) -> LoadedVariant:
        """The same library loaded once more: under another path, since the loader shares one path's image."""
        with tempfile.TemporaryDirectory(prefix="autotuner-copy-") as folder:
            copy = shutil.copy(artifact.path, folder)
            return cls(artifact.model_copy(update={"path": copy}))

    @property
    def library(self) -> str:
        """The name of its file, which no other library has."""
        return Path(str(self._module.__file__)).name

    def identity(self) -> Reported:
        """What the binary reports of itself, read from the loaded library."""
        abi_version, call_size, build_id, text = self._module.identity()
        macros = dict(line.split("=", 1) for line in text.splitlines())
        return Reported(abi_version, call_size, build_id, macros)

    def workspace_bytes(self, problem: Problem) -> int:
        """Bytes of workspace one forward needs."""
        return int(self._module.workspace(problem.shape, problem.scalars))

    def run(
        self,
        problem: Problem,
        inputs: tuple[Any, ...],
        outputs: tuple[Any, ...],
        workspace: int,
        workspace_bytes: int,
        stream: int = 0,
    ) -> int:
        """One forward; returns the variant's status (see status.py). On CUDA it is only launched.

        Inputs and outputs are tensors, or have their data_ptr(), dtype, device, shape and stride().

        `workspace` is an address. Raises TypeError for a tensor of another element type or on another device, and
        ValueError for one of another shape, with other strides or misaligned (16 bytes; 64 for the workspace). Nothing
        is launched then.
        """
        sizes, scalars = problem.shape, problem.scalars
        return int(self._module.run(inputs, outputs, sizes, scalars, workspace, workspace_bytes, stream))

    def prepared(
        self,
        problem: Problem,
        inputs: tuple[Any, ...],
        outputs: tuple[Any, ...],
        workspace: int,
        workspace_bytes: int,
    ) -> Callable[[int], int]:
        """The same forward, to be run often: a function of the stream. Raises as `run` does, now."""
        call = self._module.prepare(inputs, outputs, problem.shape, problem.scalars, workspace, workspace_bytes)
        launch = self._module.launch
        return lambda stream: int(launch(call, stream))

    def changes_floats(self) -> bool:
        """Whether a launch has left its thread's rounding or handling of subnormals changed. It was changed back."""
        return bool(self._module.floats_changed())

    def command(self, numbers: tuple[int, ...], stream: int) -> int:
        """A call without tensors, for the harness's own instruments; each number is at least 1."""
        return int(self._module.run((), (), numbers, (), 0, 0, stream))
