"""Toolchain: the compilers of a kind of device. Each device's folder has one."""

from __future__ import annotations

import contextlib
import subprocess
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from autotuner.forge.compiling import NotCompiled
from autotuner.values import config
from autotuner.values.errors import ToolchainError
from autotuner.values.model import Model
from autotuner.values.verdict import Fault

if TYPE_CHECKING:
    from autotuner.forge.build_inputs import BuildInputs

LISTING = "variant.s"
"""Beside a library: its machine code as text."""
EXPORTS = "exports.map"
"""In a build's folder what others see of the library."""
HOST = "host.o"
"""The host side in a build's folder, where a variant has one."""
IDENTITY = ("at_build_id", "at_macros")
"""The constants by which a binary says what it is, and by which alone two builds of one program differ."""

NO_DISASSEMBLER = "no objdump on the PATH; install one (apt-get install binutils)"


class Forged(NotCompiled):
    """Raised for what stands in the place of the identity, or reads it: it would be in no program hash."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name} is the build's own, and the source puts something there or reads it: a variant computes from its"
            " inputs alone; use another name"
        )


class Toolchain(Model):
    """The compilers for one architecture. Its fields are part of an artifact's identity."""

    compiler: str
    """The C++ compiler: of the variant or of its host side."""
    version: str
    """Of every compiler that is used."""
    architecture: str
    """What is compiled for."""
    binding_flags: tuple[str, ...]
    """Of what is compiled once a toolchain: the Python binding and host sides."""

    unit: ClassVar[str]
    """The file name of a variant's translation unit."""
    trial: ClassVar[str]
    """A unit of nearly nothing, by which the compilers are tried before any variant is compiled."""
    needs_host: ClassVar[bool] = False
    """Whether a variant has a host side beside its own source."""
    objects: ClassVar[tuple[str, ...]] = ()
    """File names of the objects of a build that are the variant without its Python module; none: it cannot be linked
    into anything else."""
    sources: ClassVar[tuple[str, ...]] = ()
    """File names of the ABI's sources that a build compiles beside the variant and the binding."""
    shared: ClassVar[tuple[str, ...]] = ()
    """Of these such as are compiled once a toolchain, and lie in the folder of a build beside the host side."""
    allowed: ClassVar[str] = ""
    """A regular expression for the flags that a family may give: those that change the program alone."""
    torch_device: ClassVar[str]
    """torch's name of the kind of device whose tensors a variant takes."""

    @property
    @abstractmethod
    def flags(self) -> tuple[str, ...]:
        """Of every variant, before those of its implementation."""

    def of(self, language: str) -> Toolchain:
        """What compiles variants in that language (`Implementation.language`). Raises ToolchainError."""
        return self

    def flags_for(self, exact: str) -> tuple[str, ...] | None:
        """Those of a variant with instructions of one architecture alone; None where that is not the one here."""
        return None

    @property
    def include_dirs(self) -> tuple[Path, ...]:
        """Folders of headers that the host side needs."""
        return ()

    @property
    def reads(self) -> tuple[Path, ...]:
        """What its compilers read beside a toolkit."""
        return ()

    @abstractmethod
    def identity(self, digest: str, report: Sequence[str], signature: str) -> list[str]:
        """The last lines of the translation unit, by which the binary says what it is: the constants of IDENTITY, and
        what refers to them. `report` are C string literals, and so is `signature`."""

    @abstractmethod
    def compiled(self, words: Sequence[str]) -> list[str]:
        """The command that compiles `unit` with these flags, in its folder."""

    def refused(self, said: str) -> str:
        """Why a unit of nearly nothing was not compiled, with the remedy, from what the compiler said."""
        return f"{self.compiler} cannot compile an empty kernel: {' '.join(said.split())[:300]}; set CXX to another one"

    @abstractmethod
    def steps(self, inputs: BuildInputs, binding: Path) -> list[list[str]]:
        """The commands of the variant's build, which run one after the other in its folder. The binding's object is
        compiled once a toolchain, and so is the host side, which lies in the folder."""

    def linked(self, inputs: BuildInputs, *parts: str | Path) -> list[str]:
        """The link of a library whose Python module carries the artifact's name, the only one that others see: what it
        calls by another name of its own is its own, whatever the process has under that name."""
        named = f"-Wl,--defsym=PyInit_{inputs.name}=PyInit_variant,--version-script={EXPORTS}"
        return [self.compiler, "-shared", "-pthread", named, *map(str, parts), "-o", inputs.library]

    @abstractmethod
    def program_hash(self, folder: Path) -> str:
        """SHA-256 of the program in `objects` of a build's folder: of all but the constants of IDENTITY. Raises Forged
        where something else stands in their place, or reads them."""

    @abstractmethod
    def misconduct(self, folder: Path, threads: bool, state: bool) -> str | None:
        """What the host's code in a build's folder may not do, and does, in words: run when it is loaded, ask for the
        time or the system, call what is not on its list, and keep state. `threads`: the variant has some; `state`: its
        family says that it keeps some. Raises ToolchainError without a disassembler."""

    @abstractmethod
    def resources(self, folder: Path, printed: str) -> dict[str, int] | Fault:
        """What was compiled in the folder uses; a fault when the device could not launch it."""

    def list_code(self, folder: Path, code: str | None) -> None:
        """Keeps the machine code as text beside the library: it is made once a build, beside other builds, and where a
        variant is judged no program can be called."""
        if code is not None:
            (folder / LISTING).write_text(code)

    def disassembly(self, library: Path) -> str | None:
        """The machine code of a built library as text; None where it was built without a disassembler at hand."""
        with contextlib.suppress(OSError):
            return (library.parent / LISTING).read_text()
        return None


def ask(compiler: str, *arguments: str) -> str:
    """The standard output of a compiler query. Raises ToolchainError when it fails."""
    try:
        done = subprocess.run(
            [compiler, *arguments], env=config.for_compilers(), capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        name = Path(compiler).name
        raise ToolchainError(f"{compiler} {' '.join(arguments)} failed: {error}; is it a working {name}?") from None
    return done.stdout


def cxx() -> str:
    """The C++ compiler. Raises ToolchainError with the remedy."""
    compiler = config.cxx()
    if compiler is None:
        raise ToolchainError(
            f"no C++ compiler: {config.cxx_wanted()} is not on the PATH; install one (apt-get install g++)"
        )
    return compiler
