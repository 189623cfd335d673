"""What a compiled object says about itself: its program hash and its disassembly."""

import hashlib
import re
import shutil
import subprocess
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection
from elftools.elf.sections import Section, Symbol, SymbolTableSection

from autotuner.forge.toolchain import IDENTITY, NO_DISASSEMBLER, Forged
from autotuner.values.errors import ToolchainError

ALLOC = 0x2
IDENTITY_SECTIONS = {f".{name}": f"_ZL{len(name)}{name}" for name in IDENTITY}
"""Of each constant of the identity the section, and its name there: a static one of C++."""
IDENTITY_TABLE = ".at_identity"
"""The section that alone refers to the constants of the identity."""


def _is_program(section: Section) -> bool:
    """True for sections that the program executes or reads, among them those that unwind it."""
    return bool(section["sh_flags"] & ALLOC) and section.name not in IDENTITY_SECTIONS


def _place(elf: ELFFile, symbol: Symbol) -> str:
    """What a symbol stands for: a place in a section of this object, else its name, and the number that it may be."""
    where = symbol["st_shndx"]
    named = elf.get_section(where).name if isinstance(where, int) else symbol.name
    return f"{named}+{symbol['st_value']}"


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
            if section["sh_type"] == "SHT_GROUP":  # the linker leaves it out where another object has it
                signature = sections[section["sh_link"]].get_symbol(section["sh_info"])
                digest.update(f"{signature.name} {section.data().hex()}\n".encode())
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
    command = [objdump, "-dr", "--no-show-raw-insn", str(path)]  # what is called is named by relocations
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


# What a variant may do ------------------------------------------------------------------------------------------------

MATHS = (
    r"(a?(sin|cos|tan)h?|atan2|exp(2|10|m1)?|log(2|10|1p|b)?|pow|sqrt|cbrt|hypot|fma|fmod|remainder|fabs|floor|ceil|trunc|"
    r"l?l?r(ound|int)|nearbyint|copysign|f(max|min|dim)|frexp|ldexp|scalbl?n|modf|erfc?|[tl]gamma|ilogb|nextafter|sincos)"
    r"[fl]?|_ZGV[a-z]N\w+"
)
MEMORY = r"mem(cpy|move|set|cmp)|str(len|n?cmp)|[mc]alloc|realloc|free|aligned_alloc|posix_memalign|_Z(n[wa]|d[la])\w+"
COMPILER = (
    r"_GLOBAL_OFFSET_TABLE_|__mem\w+_chk|_Unwind_Resume|__gxx_personality_v0|_ZSt\d+__throw_\w+|"
    r"__cxa_(guard_\w+|begin_catch|end_catch|rethrow)|__cpu_(model|features2|indicator_init)|"
    r"__(trunc|extend|fix(uns)?|float(un)?|u?(div|mod|divmod)|mul|add|sub|neg|pow|[al]sh[lr]|u?cmp|eq|ne|lt|le|gt|ge|unord|"
    r"popcount|parity|clz|ctz|ffs|bswap)i?(([bhsdxt]f|[hsdxt]c|[sdt]i){1,2})[2-4]?"
)
"""What its own code calls where it must, to unwind, to convert, and for integers and numbers that the CPU has not."""
THREADS = r"at_pool_run|pthread_(create|join|detach|(attr|mutex|cond|barrier|spin)_(?!timed|clock)\w+)|sched_yield"
FORBIDDEN = re.compile(
    r":\t(?:[\w.]+ +)*(syscall|sysenter|int|rdtscp?|rdp(?:mc|id|ru)|rdrand|rdseed|(?:rd|wr)(?:[fg]sbase|pkru)|"
    r"lsl(?= *%)|lar|s[gil]dt|smsw|str(?= *[%(])|ver[rw]|x(?:begin|test)|std|u?m(?:onitor|wait)x?|tpause|cpuid|xgetbv|"
    r"popfw?|u?iret[wq]?|fn?stenv|fldenv|f?n?x?(?:save|rstor)\w*|svc|mrs\s+\w+, cnt[vp]ct\w*)\b|"
    r"(%mm[0-7]\b|%(?:[de]s\b(?!:)|[fg]s\b)|DW\.ref\.\w+)"
)
"""After prefixes: of the system, a clock, chance, the direction of copies, and what keeps a number. DW.ref is of stacks
alone."""
IFUNC = ("STT_LOOS", "STT_GNU_IFUNC")
"""A symbol's type, of which pyelftools has two names."""
AT_LOAD = (".init", ".preinit_array", ".ctors", ".fini", ".dtors")
"""What names of sections begin with that run then, or at the end: arrays of functions, and code."""
CALLED = (4, 282, 283)
"""Types of relocations that call, of x86-64 and AArch64."""
TAKEN = re.compile(r":\t(?!(?:\w+ +)*(?:call|j)\w* )[^\n]*\n\s*[\da-f]+: R_X86_64_PLT32\t([\w.@]+)")
"""And one of another instruction: it has the address of what jumps to the function, and has that in it."""
NAMED = re.compile(r"__gxx_personality_v0|__cpu_(model|features2)")
"""What else code refers to that must be elsewhere, or may not be there at all."""
WRITABLE, EXECUTED = 0x3, 0x4
"""Flags of a section: allocated and writable; with instructions."""
RESERVED = re.compile(r"_(?!Z|_clang_call_terminate)\w+")
"""Names of the system's, but for those of C++. That it takes none of what the build adds, the build looks itself."""
UNWINDS = ".data.rel.local.DW.ref.__gxx_personality_v0"
"""A section that g++ makes writable where functions unwind; the table of these alone refers to it."""
RELOCATED = re.compile(rf"\.data\.rel\.ro(\..*)?|{re.escape(IDENTITY_TABLE)}")
"""Constants with addresses in them, written by the loader alone."""


def misconduct(path: Path, code: str | None, calls: str, state: bool) -> str | None:
    """What an object does that a variant may not, in words; `code` is its disassembly. `calls` is a regular expression
    for the functions that it may call; with `state` it may call others, and keep state. Raises ToolchainError without a
    disassembly."""
    with path.open("rb") as stream:
        sections = list(ELFFile(stream).iter_sections())
        symbols = [each for table in sections if isinstance(table, SymbolTableSection) for each in table.iter_symbols()]
        executed = [place for place, section in enumerate(sections) if section["sh_flags"] & EXECUTED]
        for section in sections:
            if section.name.startswith(AT_LOAD) and section["sh_size"]:
                return f"it runs code when it is loaded ({section.name}): make its constants constexpr"
            if section.name == ".note.GNU-stack" and section["sh_flags"] & EXECUTED:
                return "it wants a stack that can be executed: leave that to g++"
        if not state and (kept := _state(sections, symbols)):
            return f"it keeps state in {kept}: use the workspace, or say `state` with the reason in kernel.toml"
        for symbol in symbols:
            if symbol["st_info"]["type"] in IFUNC:
                return f"{symbol.name} is chosen when it is loaded (IFUNC): choose by a parameter"
            if symbol["st_info"]["type"] == "STT_OBJECT" and symbol["st_shndx"] in executed:
                return f"it has data among its code ({symbol.name}), where a disassembly shows none: leave that to g++"
            if symbol["st_shndx"] == "SHN_UNDEF" and symbol.name and not state and not re.fullmatch(calls, symbol.name):
                return f"it calls {symbol.name}: a variant may call mathematics, memory and, with THREADS, threads"
            if not state and _is_reserved(symbol):
                return f"it defines {symbol.name}, which the system may have: choose another name, and leave it hidden"
        taken = next(filter(None, (_address_taken(sections, each) for each in sections)), None)
        jumps = TAKEN.search(code or "")
        if not state and (taken or jumps):
            name = taken or (jumps and jumps[1])
            return f"it takes the address of {name}, from which others can be found: call it by its name"
    if not code:
        raise ToolchainError(NO_DISASSEMBLER)
    found = FORBIDDEN.search(code)
    return f"it has the instruction {found[1] or found[2]}: a variant computes from its inputs alone" if found else None


def _is_reserved(symbol: Symbol) -> bool:
    """Whether what g++ links a library with would find it in place of the system's own, or a loader the system's in
    place of it."""
    bound, seen = symbol["st_info"]["bind"], symbol["st_other"]["visibility"] == "STV_DEFAULT"
    if bound == "STB_LOCAL" or symbol["st_shndx"] == "SHN_UNDEF":
        return False
    named = not symbol.name.startswith("_Z")  # inline functions of C++ have it of the library's headers
    return RESERVED.fullmatch(symbol.name) is not None or (seen and (named or bound == "STB_GLOBAL"))


def _address_taken(sections: list[Section], section: Section) -> str | None:
    """The name of what is elsewhere and to which the program's part that this relocates refers, but for calls."""
    if not isinstance(section, RelocationSection) or not _is_program(sections[section["sh_info"]]):
        return None
    symbols = sections[section["sh_link"]]
    for each in section.iter_relocations():
        target = symbols.get_symbol(each["r_info_sym"])
        elsewhere = target["st_shndx"] == "SHN_UNDEF" and target.name and not NAMED.fullmatch(target.name)
        if elsewhere and each["r_info_type"] not in CALLED:
            return str(target.name)
    return None


def _reads(sections: list[Section], section: Section, others: set[str]) -> bool:
    """Whether a part of the program that this relocates, but for the table that unwinds, refers into those sections."""
    if not isinstance(section, RelocationSection) or sections[section["sh_info"]].name in (".eh_frame", UNWINDS):
        return False
    symbols = sections[section["sh_link"]]
    places = (symbols.get_symbol(each["r_info_sym"])["st_shndx"] for each in section.iter_relocations())
    return any(isinstance(place, int) and sections[place].name in others for place in places)


def _state(sections: list[Section], symbols: list[Symbol]) -> str | None:
    """The name of a variable, or section, that code can write."""
    if common := next((each for each in symbols if each["st_shndx"] == "SHN_COMMON"), None):
        return str(common.name)
    for place, section in enumerate(sections):
        if section["sh_flags"] & WRITABLE != WRITABLE or RELOCATED.fullmatch(section.name) or not section["sh_size"]:
            continue
        if section.name == UNWINDS and not any(_reads(sections, each, {UNWINDS, ".eh_frame"}) for each in sections):
            continue
        here = (each for each in symbols if each["st_shndx"] == place and each["st_info"]["type"] != "STT_SECTION")
        return next((str(each.name) for each in here if each.name), section.name)
    return None
