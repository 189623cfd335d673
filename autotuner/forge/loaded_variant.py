"""A built variant, loaded: the Python side of kernels/abi/binding.cpp, and its statuses in words. No torch here."""

import hashlib
import importlib.util
import shutil
import tempfile
from collections.abc import Callable, Mapping
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, Self

from autotuner.values.outcome import Artifact
from autotuner.values.problem import Problem
from autotuner.values.verdict import SystemFault

OUTSIDE_DOMAIN = 1
"""AT_OUTSIDE_DOMAIN of kernels/abi/variant.h."""

RAISED = 4
"""A function of Python raised, or its answer is none: kernels/abi/python_function.cpp."""
raised: list[str] = []
"""What the last one said that did, in a line."""

STATUS = {
    0: "ok",
    OUTSIDE_DOMAIN: "outside the variant's domain",
    2: "workspace missing or too small",
    3: "no threads",
    RAISED: "the function raised",
}
DEVICE_ERROR = 1000


class LibraryErrors(NamedTuple):
    """Errors of a library that a host side calls: `above` and the library's own number."""

    above: int
    name: str
    where: str
    """Where the numbers are named."""


class DeviceErrors(NamedTuple):
    """The errors of a kind of device."""

    names: Mapping[int, str] = {}
    where: str = ""
    """Where the numbers are named."""
    sticky: frozenset[int] = frozenset()
    """Errors after which the process can do nothing more on the device."""
    library: LibraryErrors | None = None

    def text(self, status: int) -> str:
        """A variant's status in words."""
        if status == RAISED and raised:
            return raised[-1]
        if status < DEVICE_ERROR:
            return STATUS.get(status, f"unknown status {status}")
        number = status - DEVICE_ERROR
        if self.library is not None and number > self.library.above:
            return f"{self.library.name} status {number - self.library.above} (see {self.library.where})"
        return f"device error {number} ({self.names.get(number, f'see {self.where}')})"

    def is_sticky(self, status: int) -> bool:
        """True when the status is a device error that outlives the call."""
        return status - DEVICE_ERROR in self.sticky

    def system_fault(self, status: int) -> SystemFault:
        """A variant's status as the report keeps it: a device error by the device's own number."""
        above = self.library.above if self.library is not None else status
        number = status - DEVICE_ERROR if DEVICE_ERROR <= status <= DEVICE_ERROR + above else status
        return SystemFault(number=number, name=self.text(status), sticky=self.is_sticky(status))


class Reported(NamedTuple):
    """What the binary says it is."""

    abi_version: int
    call_size: int
    build_id: str
    macros: dict[str, str]


class LoadedVariant:
    """One loaded artifact. Loading the same artifact twice gives two independent modules only under two paths."""

    def __init__(self, artifact: Artifact) -> None:
        """Raises ImportError when the library cannot be loaded under its unique name, or is another than was built."""
        path = Path(artifact.path)
        if path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() != artifact.library_sha256:
            raise ImportError(f"{artifact.path} is not the library that was built")
        loader = ExtensionFileLoader(artifact.name, artifact.path)
        spec = importlib.util.spec_from_file_location(artifact.name, artifact.path, loader=loader)
        assert spec is not None
        self._module: ModuleType = importlib.util.module_from_spec(spec)
        loader.exec_module(self._module)

    @classmethod
    def second(cls, artifact: Artifact) -> Self:
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
        """One forward; returns the variant's status (see STATUS). On CUDA it is only launched.

        Inputs and outputs are tensors, or have their data_ptr(), dtype, device, shape and stride().

        `workspace` is an address. Raises TypeError for a tensor of another element type or on another device, and
        ValueError for one of another shape, with other strides or misaligned (16 bytes; 64 for the workspace). Nothing
        is launched then.
        """
        sizes, scalars = problem.shape, problem.scalars
        return int(self._module.run(inputs, outputs, sizes, scalars, workspace, workspace_bytes, stream))

    def prepared(
        self, problem: Problem, inputs: tuple[Any, ...], outputs: tuple[Any, ...], workspace: int, workspace_bytes: int
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
