"""Language: what a source is, and what is written for a build of it. One subclass a language.

How it is compiled and launched is the toolchain's (`Toolchain.of`), which knows the device.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from autotuner.spaces.expression import Expression, ExpressionError
from autotuner.values.errors import KernelError

if TYPE_CHECKING:
    from autotuner.forge.build_inputs import BuildInputs
    from autotuner.forge.family import Family, Implementation
    from autotuner.values.problem import Problem
    from autotuner.values.variant import Value, Variant


class VariantToBuild(NamedTuple):
    """A variant of a family, and what it is built for."""

    family: Family
    implementation: Implementation
    variant: Variant
    problem: Problem
    compiled: Mapping[str, Value]
    """The macros that the problem gives."""
    torch_device: str


class Language(ABC):
    """A language of sources."""

    name: ClassVar[str]
    """By which a toolchain is asked for what compiles it."""
    has_host: ClassVar[bool] = False
    """Whether its variants are linked with a host side in C++ where the device needs one."""
    is_binary: ClassVar[bool] = True
    """Whether all of a variant is machine code, which tools can watch."""

    @abstractmethod
    def takes(self, implementation: Implementation) -> bool:
        """Whether the implementation is written in it, by its keys and its source's suffix, where it names none."""

    def check(self, where: str, family: Family, implementation: Implementation) -> None:
        """Raises KernelError, which names the key, for what would otherwise show only when a variant is built."""
        if not implementation.source:
            raise KernelError(f"{where}.source: expected the name of a file: a function is of the language python")

    def source(self, family: Family, implementation: Implementation) -> Path:
        """The file that is compiled."""
        return family.folder / implementation.source

    def files(self, family: Family, implementation: Implementation) -> dict[Path, bytes]:
        """Other files that a variant is made from, with their contents. Raises KernelError."""
        return {}

    def words(self, implementation: Implementation) -> str | None:
        """Text of kernel.toml that reads parameters as the source does; None: the source takes them all by name."""
        return ""

    def call(self, wanted: VariantToBuild) -> Any:
        """What kernel.toml says of the call, which no source holds, as plain values: a part of the artifact's identity.
        Raises KernelError."""
        return None

    @abstractmethod
    def texts(self, inputs: BuildInputs) -> dict[str, str]:
        """The files that are written into a build's folder before it is compiled, by name."""


def checked(where: str, text: str, known: set[str]) -> Expression:
    """Raises KernelError for an expression of kernel.toml that cannot be read or asks for what is not known."""
    try:
        found = Expression.parse(text)
    except ExpressionError as error:
        raise KernelError(f"{where}: {error.reason}") from None
    if unknown := sorted(found.names - known):
        raise KernelError(f"{where}: {unknown[0]} is no parameter of it; known: {', '.join(sorted(known))}")
    return found
