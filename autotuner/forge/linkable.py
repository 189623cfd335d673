"""A build of the cache as an object that other programs are linked with: the machine code that was proven, without its
Python module, under one symbol."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from autotuner.forge.build import BUILD_DEADLINE_S, first_error, run
from autotuner.forge.toolchain import Toolchain
from autotuner.values import config
from autotuner.values.errors import InputError, ToolchainError

PLAIN = ("-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden")
"""Flags of what runs before it is known which CPU this is."""


def isolated(toolchain: Toolchain, folder: Path, host: Path | None, symbol: str, into: Path) -> Path:
    """The variant of a build's folder as one object, with its compiled host side where it has one. Its only symbol is
    its `at_identity` (kernels/abi/identity.h).

    Every other name becomes local, so that variants with equal names in them stay apart. Raises InputError where the
    kind of device has no such objects, ToolchainError where the linker fails.
    """
    if not toolchain.objects:
        raise InputError(f"variants for {toolchain.torch_device} cannot be linked into another program: export json")
    parts = [*(folder / name for name in toolchain.objects), *([host] if host else [])]
    made = joined(toolchain, parts, into / f"{symbol}.o")
    objcopy = shutil.which("objcopy")
    if objcopy is None:
        raise ToolchainError("no objcopy on the PATH; install one (apt-get install binutils)")
    names = {"variant_identity": symbol, **{name: f"{symbol}_{name}" for name in _unique(made)}}
    renamed = into / f"{symbol}.names"
    renamed.write_text("".join(f"{old} {new}\n" for old, new in names.items()))
    tool([objcopy, f"--redefine-syms={renamed}", str(made)])
    tool([objcopy, f"--keep-global-symbol={symbol}", str(made)])
    return made


def _unique(made: Path) -> list[str]:
    """Names of an object that the system keeps one of in a process, and that cannot become local: such are static
    variables of inline functions."""
    with made.open("rb") as stream:
        tables = [each for each in ELFFile(stream).iter_sections() if isinstance(each, SymbolTableSection)]
        symbols = [each for table in tables for each in table.iter_symbols()]
    return [str(each.name) for each in symbols if each["st_info"]["bind"] == "STB_LOOS"]


def joined(toolchain: Toolchain, objects: Sequence[Path], made: Path) -> Path:
    """Several objects as one, which can be linked again."""
    parts = ["-r", "-nostdlib", "-Wl,--force-group-allocation", *map(str, objects)]
    tool([toolchain.compiler, *parts, "-o", str(made)])
    return made


def compiled(toolchain: Toolchain, source: Path, include_dirs: Sequence[Path]) -> Path:
    """A source that is made anew for each export, compiled beside it."""
    made = source.with_suffix(".o")
    folders = [f"-I{folder}" for folder in include_dirs]
    tool([toolchain.compiler, *PLAIN, *folders, "-c", str(source), "-o", str(made)])
    return made


def tool(command: list[str]) -> None:
    """Runs a compiler, linker or their like. Raises ToolchainError with what it said."""
    done = run(command, BUILD_DEADLINE_S, config.for_compilers())
    if done is None or done.returncode:
        said = "it took too long" if done is None else " ".join(first_error(done.stdout).split())
        raise ToolchainError(f"{Path(command[0]).name} failed: {said}")
