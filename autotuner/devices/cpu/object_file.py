"""What a compiled object says about itself: its program hash and its disassembly."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection
from elftools.elf.sections import Section, Symbol, SymbolTableSection

from autotuner.forge.toolchain import IDENTITY, Forged

ALLOC = 0x2
IDENTITY_SECTIONS = {f".{name}": f"_ZL{len(name)}{name}" for name in IDENTITY}
"""Of each constant of the identity the section, and its name there: a static one of C++."""
IDENTITY_TABLE = ".at_identity"
"""The section that alone refers to the constants of the identity."""


def _is_program(section: Section) -> bool:
    """True for sections that the program executes or reads, among them those that unwind it."""
    return bool(section["sh_flags"] & ALLOC) and section.name not in IDENTITY_SECTIONS


def _place(elf: ELFFile, symbol: Symbol) -> str:
    """What a symbol stands for: a place in a section of this object, else its name."""
    where = symbol["st_shndx"]
    return f"{elf.get_section(where).name}+{symbol['st_value']}" if isinstance(where, int) else str(symbol.name)


def program_hash(path: Path) -> str:
    """SHA-256 over code, constants, relocations and names of an object file.

    Two objects with equal hashes are the same program, whatever they call themselves. Host-side parameters of a call
    are part of the code on the CPU. Raises Forged where the place of the identity has something else in it, or the
    program reads it.
    """
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        elf = ELFFile(stream)
        sections = list(elf.iter_sections())
        for section in sections:
            if _is_program(section):
                about = [section[f"sh_{each}"] for each in ("type", "flags", "addralign", "size")]
                digest.update(f"{section.name} {about}\n".encode())
                digest.update(section.data() if section["sh_type"] != "SHT_NOBITS" else b"")
        for section in sections:
            if isinstance(section, RelocationSection) and _is_program(sections[section["sh_info"]]):
                symbols = sections[section["sh_link"]]
                for relocation in section.iter_relocations():
                    target = symbols.get_symbol(relocation["r_info_sym"])
                    _refuse_reader(sections, sections[section["sh_info"]], target)
                    place = _place(elf, target)
                    entry = (relocation["r_offset"], relocation["r_info_type"], place, relocation["r_addend"])
                    digest.update(f"{section.name} {entry}\n".encode())
            if isinstance(section, SymbolTableSection):
                _require_identity(sections, list(section.iter_symbols()))
                for symbol in section.iter_symbols():
                    if symbol["st_info"]["bind"] != "STB_LOCAL" and symbol["st_shndx"] != "SHN_UNDEF":
                        about = [symbol["st_info"]["bind"], symbol["st_info"]["type"], symbol["st_other"]["visibility"]]
                        digest.update(f"{symbol.name} {about} {_place(elf, symbol)}\n".encode())
    return digest.hexdigest()


def _refuse_reader(sections: list[Section], reader: Section, target: Symbol) -> None:
    """Raises Forged for a reference to the identity from anywhere but its own table, and for one to that table."""
    where = target["st_shndx"]
    name = sections[where].name if isinstance(where, int) else ""
    if name == IDENTITY_TABLE or (name in IDENTITY_SECTIONS and reader.name != IDENTITY_TABLE):
        raise Forged(name)


def _require_identity(sections: list[Section], symbols: list[Symbol]) -> None:
    """Raises Forged unless a section of the identity is one constant, and nothing else."""
    for name, constant in IDENTITY_SECTIONS.items():
        found = [place for place, section in enumerate(sections) if section.name == name]
        named = [each for each in symbols if each["st_shndx"] in found and each["st_info"]["type"] != "STT_SECTION"]
        whole = [(each.name, each["st_value"], each["st_size"]) for each in named]
        if whole != [(constant, 0, sections[place]["sh_size"]) for place in found][:1] or len(found) > 1:
            raise Forged(name)


def text_bytes(path: Path) -> int:
    """Bytes of machine code in an object file, or a cubin."""
    with path.open("rb") as stream:
        sections = ELFFile(stream).iter_sections()
        return sum(section["sh_size"] for section in sections if section.name.startswith(".text"))


def disassemble(path: Path) -> str | None:
    """The disassembly of a library or object; None where there is no objdump."""
    objdump = shutil.which("objdump")
    if objdump is None:
        return None
    command = [objdump, "-d", "--no-show-raw-insn", str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
