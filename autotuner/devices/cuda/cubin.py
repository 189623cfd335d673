"""What a cubin says about itself: launch geometry, program hash, resources, disassembly. A cubin is an ELF file."""

import hashlib
import importlib.util
import io
import re
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Self

from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection
from elftools.elf.sections import Section, SymbolTableSection

from autotuner.forge.toolchain import IDENTITY, Forged
from autotuner.values import config
from autotuner.values.errors import InputError

IDENTIFIES = re.compile(f"({'|'.join(IDENTITY)})_[0-9a-f]{{16}}")
"""Names of the constants of the identity."""
OWN = ("variant_geometry", "at_signature")
"""The build's other variables."""
PROGRAM = re.compile(r"\.(text|nv\.info|nv\.constant\d+|nv\.shared|nv\.global)(\.|$)")
"""Sections that the program executes, reads or is launched by. `.nv.info` holds registers, launch bounds, clusters."""
GEOMETRY = struct.Struct("<7i8i8i")
OP_VALUES = 8
RESOURCES = {
    "stack_bytes": r"(\d+) bytes stack frame",
    "spill_store_bytes": r"(\d+) bytes spill stores",
    "spill_load_bytes": r"(\d+) bytes spill loads",
    "registers": r"Used (\d+) registers",
    "static_shared_bytes": r"(\d+) bytes smem",
}


class Geometry(NamedTuple):
    """How the kernel is launched: what is told of it, of the fields of kernels/abi/geometry.h."""

    threads: int
    rows: int
    cluster: int
    dynamic_shared: int
    op: tuple[int, ...]

    @classmethod
    def read(cls, path: Path) -> Self:
        """The geometry in a cubin. Raises InputError when the source defines none."""
        with path.open("rb") as stream:
            elf = ELFFile(stream)
            place = dict(_symbols(elf)).get("variant_geometry")
            if place is None:
                raise InputError(f"{path.name} has no variant_geometry: the source must define AT_GEOMETRY")
            section, start, size = place
            values = GEOMETRY.unpack(elf.get_section(section).data()[start : start + size])
        _, _, threads, rows, _, cluster, dynamic_shared, *more = values
        return cls(threads, rows, cluster, dynamic_shared, tuple(more[:OP_VALUES]))


def _symbols(elf: ELFFile) -> Iterator[tuple[str, tuple[int, int, int]]]:
    """Name and place (section, offset, size) of each object that the cubin defines."""
    for section in elf.iter_sections():
        if isinstance(section, SymbolTableSection):
            for symbol in section.iter_symbols():
                if symbol["st_info"]["type"] == "STT_OBJECT" and isinstance(symbol["st_shndx"], int):
                    yield symbol.name, (symbol["st_shndx"], symbol["st_value"], symbol["st_size"])


def _contents(elf: ELFFile, index: int, section: Section) -> Iterator[bytes]:
    """What a section adds to the program. Global data go by variable, so that the identity's strings and the places
    they push the others to do not count."""
    if section.name in (".nv.global.init", ".nv.global"):
        data = section.data() if section["sh_type"] != "SHT_NOBITS" else b""
        for name, (where, start, size) in sorted(_symbols(elf)):
            if where == index and not IDENTIFIES.fullmatch(name):
                yield f"{name} {size}\n".encode() + data[start : start + size]
        return
    yield f"{section['sh_size']}\n".encode()
    if section["sh_type"] != "SHT_NOBITS":
        yield section.data()


def program_hash(carrier: bytes, host: bytes) -> str:
    """SHA-256 over code, constants, resources and launch geometry of the cubin in an object, and over the object of its
    host side.

    The geometry holds the host side's choices. Two cubins with equal hashes are the same program, whatever they call
    themselves. Raises Forged where something else has the name of an identity.
    """
    digest = hashlib.sha256(hashlib.sha256(host).digest())
    embedded = (each.data() for each in ELFFile(io.BytesIO(carrier)).iter_sections() if each.name == ".rodata")
    elf = ELFFile(io.BytesIO(b"".join(embedded)))  # as kernels/abi/cubin.S embeds it
    sections = list(elf.iter_sections())
    identity = [name for name, _ in _symbols(elf) if IDENTIFIES.fullmatch(name)]
    if len(identity) > len(IDENTITY):
        raise Forged(identity[0])
    for index, section in sorted(enumerate(sections), key=lambda item: item[1].name):
        if PROGRAM.match(section.name):
            digest.update(f"{section.name}\n".encode())
            for part in _contents(elf, index, section):
                digest.update(part)
        if isinstance(section, RelocationSection) and section.num_relocations():
            for line in sorted(_relocations(section, sections)):
                digest.update(line.encode())
    return digest.hexdigest()


def state(path: Path) -> str | None:
    """A variable in the device's memory that is not the build's own; None where there is none."""
    with path.open("rb") as stream:
        elf = ELFFile(stream)
        names = [section.name for section in elf.iter_sections()]
        found = [name for name, (where, *_) in _symbols(elf) if names[where].startswith(".nv.global")]
    return next((each for each in found if each not in OWN and not IDENTIFIES.fullmatch(each)), None)


def _relocations(section: RelocationSection, sections: list[Section]) -> Iterator[str]:
    """References to variables, by name; those to the identity and in debugging data do not count."""
    if not PROGRAM.match(sections[section["sh_info"]].name):
        return
    symbols = sections[section["sh_link"]]
    for relocation in section.iter_relocations():
        name = symbols.get_symbol(relocation["r_info_sym"]).name
        if not IDENTIFIES.fullmatch(name):
            yield f"{section.name} {relocation['r_offset']} {relocation['r_info_type']} {name}\n"


def resources(report: str, geometry: Geometry) -> dict[str, int]:
    """Registers, spills, shared memory and threads: from what ptxas -v printed of the kernel and from the geometry."""
    _, named, own = report.partition("entry function 'variant_kernel'")  # others may run before it
    own = own.partition("entry function")[0] if named else report
    found = {name: re.search(pattern, own) for name, pattern in RESOURCES.items()}
    numbers = {name: int(match[1]) if match else 0 for name, match in found.items()}
    return {
        **numbers,
        "threads": geometry.threads,
        "rows": geometry.rows,
        "cluster": max(1, geometry.cluster),
        "dynamic_shared_bytes": geometry.dynamic_shared,
        "shared_bytes": geometry.dynamic_shared + numbers["static_shared_bytes"],
    }


def find_cuobjdump(nvcc: str | None = None) -> str | None:
    """NVIDIA's disassembler: beside nvcc, on the PATH, or the one that Triton carries; None when there is none."""
    beside = str(Path(nvcc).resolve().parent) if nvcc else None
    spec = importlib.util.find_spec("triton")
    roots = list(spec.submodule_search_locations or ()) if spec else []
    folders = [beside, None, *(str(Path(root) / "backends" / "nvidia" / "bin") for root in roots)]
    found = (shutil.which("cuobjdump", path=folder) for folder in folders)
    return next((tool for tool in found if tool), None)


def disassemble(path: Path, nvcc: str | None = None) -> str | None:
    """The SASS of a cubin; None where there is no cuobjdump."""
    tool = find_cuobjdump(nvcc)
    if tool is None:
        return None
    # It calls nvdisasm, which lies in the same folder and not always on the PATH.
    environment = config.with_programs_of(Path(tool).parent)
    done = subprocess.run(
        [tool, "-sass", str(path)], capture_output=True, text=True, check=True, timeout=120, env=environment
    )
    return done.stdout
