"""A build of the cache as an object that other programs are linked with: the machine code that was proven, without its
Python module, under one symbol; and what a library needs of the system that loads it."""

import functools
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from auditwheel.elfutils import elf_find_versioned_symbols
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import Symbol, SymbolTableSection

from autotuner.forge.build_inputs import files_of
from autotuner.forge.compiling import run_compiler
from autotuner.forge.toolchain import Forged, Toolchain
from autotuner.values.errors import InputError, ToolchainError

PLAIN = ("-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden")
"""Flags of what runs before it is known which CPU this is."""


UNIT = "unit.o"
"""In a build's folder what was compiled of C++."""
VERSION = re.compile(r"(GLIBC|GLIBCXX|CXXABI)_([\d.]+)")
ASKED = re.compile(r"variant_(identity|run|workspace|cubin(_end)?)")
"""What the ABI's objects want of a variant's."""
PYTHON = re.compile(r"_?Py[A-Z_]")


def isolated(toolchain: Toolchain, folder: Path, symbol: str, into: Path) -> Path:
    """The variant of a build's folder as one object. Its only symbol is its `at_identity` (kernels/abi/identity.h).

    Every other name becomes local, so that variants with equal names in them stay apart. Raises InputError for a
    function of Python and where the kind of device has no such objects, ToolchainError where the linker fails.
    """
    if (folder / UNIT).is_file() and python_symbols(folder / UNIT):
        raise InputError("a function of Python is no library: export json, and call it with the parameters it names")
    if not toolchain.objects:
        raise InputError(f"variants for {toolchain.torch_device} cannot be linked into another program: export json")
    made = joined(toolchain, [folder / name for name in toolchain.objects], into / f"{symbol}.o")
    objcopy = shutil.which("objcopy")
    if objcopy is None:
        raise ToolchainError("no objcopy on the PATH; install one (apt-get install binutils)")
    # Static variables of inline functions: the system keeps one of a name in a process, and none can become local.
    unique = [str(each.name) for each in _symbols(made) if each["st_info"]["bind"] == "STB_LOOS"]
    names = {"variant_identity": symbol, **{name: f"{symbol}_{name}" for name in unique}}
    renamed = into / f"{symbol}.names"
    renamed.write_text("".join(f"{old} {new}\n" for old, new in names.items()))
    run_compiler([objcopy, f"--redefine-syms={renamed}", str(made)], into, ())
    run_compiler([objcopy, f"--keep-global-symbol={symbol}", str(made)], into, ())
    return made


def _symbols(made: Path) -> list[Symbol]:
    with made.open("rb") as stream:
        tables = [each for each in ELFFile(stream).iter_sections() if isinstance(each, SymbolTableSection)]
        return [each for table in tables for each in table.iter_symbols()]


def require_apart(made: Path, ours: Sequence[Path]) -> None:
    """Raises Forged where an object has what is in the ABI's own objects too, or what these want of the system: the
    linker would take it in place of that. Inline functions of headers are alike: it takes those of the first object."""
    for each in _symbols(made):
        if each["st_info"]["bind"] == "STB_LOCAL" or each["st_shndx"] == "SHN_UNDEF" or ASKED.fullmatch(each.name):
            continue
        bound = str(each["st_info"]["bind"])
        others = {found[each.name] for found in map(_bindings, ours) if each.name in found}
        if others and (bound == "STB_GLOBAL" or others != {bound}):
            raise Forged(str(each.name))


@functools.cache
def _bindings(ours: Path) -> dict[str, str]:
    """Of an object's names how each is bound there; "" where it is wanted of another."""
    named = ((each, each["st_info"]["bind"]) for each in _symbols(ours))
    found = ((str(each.name), "" if each["st_shndx"] == "SHN_UNDEF" else str(bind)) for each, bind in named)
    return {name: bind for name, bind in found if bind != "STB_LOCAL"}


def versions_needed(library: Path) -> dict[str, str]:
    """The newest version of each set of symbols that it needs of the system: GLIBC, and GLIBCXX and CXXABI of the C++
    library. As auditwheel finds them."""
    newest: dict[str, tuple[int, ...]] = {}
    with library.open("rb") as stream:
        names = [name for _, name in elf_find_versioned_symbols(ELFFile(stream))]
    for found in filter(None, map(VERSION.fullmatch, names)):
        version = tuple(int(part) for part in found[2].split("."))
        newest[found[1]] = max(newest.get(found[1], ()), version)
    return {name: ".".join(map(str, version)) for name, version in sorted(newest.items())}


def python_symbols(library: Path) -> list[str]:
    """Names of CPython's C interface that it needs; where there are none it runs under any Python."""
    names = {str(each.name) for each in _symbols(library) if each["st_shndx"] == "SHN_UNDEF"}
    return sorted(name for name in names if PYTHON.match(name))


def joined(toolchain: Toolchain, objects: Sequence[Path], made: Path) -> Path:
    """Several objects as one, which can be linked again."""
    parts = ["-r", "-nostdlib", "-Wl,--force-group-allocation", *map(str, objects)]
    run_compiler([toolchain.compiler, *parts, "-o", str(made)], made.parent, objects)
    return made


def compiled(toolchain: Toolchain, source: Path, include_dirs: Sequence[Path]) -> Path:
    """A source that is made anew for each export, compiled beside it."""
    made = source.with_suffix(".o")
    folders = [f"-I{folder}" for folder in include_dirs]
    reads = (*include_dirs, *files_of([source], tuple(include_dirs)))
    run_compiler([toolchain.compiler, *PLAIN, *folders, "-c", str(source), "-o", str(made)], made.parent, reads)
    return made
