"""What a compiled object says about itself: its program hash and its disassembly."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection
from elftools.elf.sections import Section, Symbol, SymbolTableSection

ALLOC = 0x2
IDENTITY_PREFIX = ".at_"
NOT_PROGRAM = (".eh_frame", ".note")
INTERMEDIATE = (".gnu.lto_", ".llvm.lto")
ENTRIES = ("variant_workspace", "variant_run")


def _is_program(section: Section) -> bool:
    """True for sections that the program executes or reads: not its identity, not unwinding tables."""
    loaded = bool(section["sh_flags"] & ALLOC)
    return loaded and not section.name.startswith((IDENTITY_PREFIX, *NOT_PROGRAM))


def _place(elf: ELFFile, symbol: Symbol) -> str:
    """What a symbol stands for: a place in a section of this object, else its name."""
    where = symbol["st_shndx"]
    return f"{elf.get_section(where).name}+{symbol['st_value']}" if isinstance(where, int) else str(symbol.name)


def program_hash(path: Path) -> str:
    """SHA-256 over code, constants and relocations of an object file.

    Two objects with equal hashes are the same program, whatever they call themselves. Host-side parameters of a call
    are part of the code on the CPU. An object of a compiler's intermediate code (-flto) is a program of its own.
    """
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        elf = ELFFile(stream)
        sections = list(elf.iter_sections())
        if any(section.name.startswith(INTERMEDIATE) for section in sections):
            return hashlib.sha256(path.read_bytes()).hexdigest()
        for section in sections:
            if _is_program(section):
                digest.update(f"{section.name} {section['sh_type']} {section['sh_size']}\n".encode())
                digest.update(section.data() if section["sh_type"] != "SHT_NOBITS" else b"")
        for section in sections:
            if isinstance(section, RelocationSection) and _is_program(sections[section["sh_info"]]):
                symbols = sections[section["sh_link"]]
                for relocation in section.iter_relocations():
                    target = _place(elf, symbols.get_symbol(relocation["r_info_sym"]))
                    entry = (relocation["r_offset"], relocation["r_info_type"], target, relocation["r_addend"])
                    digest.update(f"{section.name} {entry}\n".encode())
            if isinstance(section, SymbolTableSection):
                for name in ENTRIES:
                    places = [_place(elf, symbol) for symbol in section.get_symbol_by_name(name) or ()]
                    digest.update(f"{name} {places}\n".encode())
    return digest.hexdigest()


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
