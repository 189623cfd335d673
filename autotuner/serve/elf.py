"""What a library needs of the system that loads it, read from the library itself."""

from __future__ import annotations

import re
from pathlib import Path

from auditwheel.elfutils import elf_find_versioned_symbols
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

VERSION = re.compile(r"(GLIBC|GLIBCXX|CXXABI)_([\d.]+)")
PYTHON = re.compile(r"_?Py[A-Z_]")


def versions_needed(library: Path) -> dict[str, str]:
    """The newest version of each set of symbols that it needs: GLIBC, and GLIBCXX and CXXABI of the C++ library. As
    auditwheel finds them."""
    newest: dict[str, tuple[int, ...]] = {}
    with library.open("rb") as stream:
        names = [name for _, name in elf_find_versioned_symbols(ELFFile(stream))]
    for found in filter(None, map(VERSION.fullmatch, names)):
        version = tuple(int(part) for part in found[2].split("."))
        newest[found[1]] = max(newest.get(found[1], ()), version)
    return {name: ".".join(map(str, version)) for name, version in sorted(newest.items())}


def python_symbols(library: Path) -> list[str]:
    """Names of CPython's C interface that it needs; where there are none it runs under any Python."""
    with library.open("rb") as stream:
        tables = [each for each in ELFFile(stream).iter_sections() if isinstance(each, SymbolTableSection)]
        names = {str(each.name) for table in tables for each in table.iter_symbols() if each["st_shndx"] == "SHN_UNDEF"}
    return sorted(name for name in names if PYTHON.match(name))
