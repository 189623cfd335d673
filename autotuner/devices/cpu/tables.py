"""Whether a variant's code stands in the tables of another library of its process, which then calls it in place of a
function of the system, such as a clock.

A library finds functions of others by addresses in memory that it can write, or that the loader could. No honest
variant's lie there: what calls it has its address from its own module.
"""

import ctypes
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

LOADED, WRITABLE = 1, 2
"""Of a segment of ELF: its type, and its flag."""
HEADERS, COUNT, BASED = 32, 56, 16
"""Where an ELF file of 64 bits has the offset and the number of its segments' headers, and its type."""
SHARED = 3
LOADER, PAGE, NEAR = "ld-", 4096, 1 << 40
"""How the name of the system's loader begins; bytes; and bytes within which libraries lie from it."""


class Mapping(NamedTuple):
    """A line of the system's table of a process's memory."""

    start: int
    end: int
    rights: str
    offset: int
    path: str


def _mappings() -> Iterator[Mapping]:
    for line in Path("/proc/self/maps").read_text(errors="replace").splitlines():
        where, rights, offset, _, _, *path = line.split(maxsplit=5)
        start, end = (int(each, 16) for each in where.split("-"))
        yield Mapping(start, end, rights, int(offset, 16), path[0] if path else "")


def _left_behind() -> frozenset[int]:
    """Where the system's loader has addresses of memory that it has given back, such as that of its cache of libraries.
    Such an address is never called, and a variant's code may come to lie there."""
    with suppress(OSError):
        ctypes.CDLL("libautotuner_nowhere.so")  # the cache is looked through, and given back, now
    found = list(_mappings())
    mapped = [(each.start, each.end) for each in found]
    return frozenset(
        start + 8 * place
        for path, start, end in _tables(found)
        if Path(path).name.startswith(LOADER)
        for place, word in enumerate(_words(start, end - start).tolist())
        if abs(word - start) < NEAR and word % PAGE == 0 and not any(first <= word < last for first, last in mapped)
    )


def replaced(library: str) -> str | None:
    """The library, if there is one, with an address in its memory that lies in the code of `library`, a file's name."""
    found = list(_mappings())
    code = [(each.start, each.end) for each in found if library in each.path and "x" in each.rights]
    others = (each for each in _tables(found) if library not in each[0])
    return next((path for path, start, end in others if end > start and _points_into(start, end - start, code)), None)


def _tables(found: list[Mapping]) -> Iterator[tuple[str, int, int]]:
    """Of each part of a loaded library that could be written: the library, and where what is readable lies."""
    readable = {each.start: each.end for each in found if each.rights.startswith("r")}
    for each in found:
        if each.offset == 0 and each.path.startswith("/") and each.rights[0] == "r":
            for start, size in _writable(each.start):
                yield each.path, start, min(start + size, _readable_from(start, readable))


def _readable_from(start: int, readable: dict[int, int]) -> int:
    """Where what can be read without a hole ends."""
    end = next((last for first, last in readable.items() if first <= start < last), start)
    while end in readable:
        end = readable[end]
    return end


def _writable(base: int) -> Iterator[tuple[int, int]]:
    """Address and size of each segment of a loaded library that could be written when it was loaded."""
    head = ctypes.string_at(base, 64)
    if head[:5] != b"\x7fELF\x02":
        return
    moved = base if struct.unpack_from("<H", head, BASED)[0] == SHARED else 0
    (at,), (count,) = struct.unpack_from("<Q", head, HEADERS), struct.unpack_from("<H", head, COUNT)
    for each in range(count):
        kind, flags, _, address, _, _, size, _ = struct.unpack("<IIQQQQQQ", ctypes.string_at(base + at + 56 * each, 56))
        if kind == LOADED and flags & WRITABLE:
            start = (moved + address + 7) & ~7
            yield start, (moved + address + size - start) & ~7


def _points_into(start: int, size: int, code: list[tuple[int, int]]) -> bool:
    words = _words(start, size)
    for first, last in code:
        places = np.flatnonzero((words >= first) & (words < last))
        if any(start + 8 * int(place) not in LEFT_BEHIND for place in places):
            return True
    return False


def _words(start: int, size: int) -> npt.NDArray[np.uint64]:
    """A copy: what numpy allocates meanwhile changes what is looked at."""
    return np.frombuffer(ctypes.string_at(start, max(size, 0)), dtype=np.uint64)


LEFT_BEHIND = _left_behind()
"""Looked for before any variant is loaded, which could choose a place otherwise."""
