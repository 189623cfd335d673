"""Landlock: a process gives up all files but those it names, for itself and whatever it starts. Linux 5.13 or newer."""

import ctypes
import os
import stat
import struct
from collections.abc import Iterable
from pathlib import Path

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
"""Numbers of the system calls, the same on every architecture."""
VERSION = 1
"""The flag that asks for the version."""
PATH_BENEATH = 1
O_PATH = 0o10000000

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = (1 << bit for bit in range(4))
TRUNCATE, IOCTL = 1 << 14, 1 << 15
KNOWN = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
"""The rights on files that each version knows."""
OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL
"""The rights that a file which is no folder can have."""
READS = EXECUTE | READ_FILE | READ_DIR
TCP = 0b11
"""Binding and connecting: from version 4 on."""
SCOPES = 0b11
"""Signals to others, and abstract sockets of others: from version 6 on."""
WITH_TCP, WITH_SCOPES = 4, 6


def version() -> int:
    """What the kernel has of it; 0 for nothing."""
    return max(0, int(_libc().syscall(CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint(VERSION))))


def restrict(reads: Iterable[Path], writes: Iterable[Path]) -> None:
    """From now on this thread, and what it starts, can read and execute what lies under `reads`, do all under
    `writes`, and nothing elsewhere. What is open stays open. Raises OSError."""
    known = version()
    rights = max(found for of, found in KNOWN.items() if of <= known)
    attributes = struct.pack("=QQQ", rights, TCP if known >= WITH_TCP else 0, SCOPES if known >= WITH_SCOPES else 0)
    size = 24 if known >= WITH_SCOPES else 16 if known >= WITH_TCP else 8
    ruleset = _call(CREATE_RULESET, ctypes.c_char_p(attributes), ctypes.c_size_t(size), ctypes.c_uint(0))
    try:
        for path in reads:
            _allow(ruleset, path, READS & rights)
        for path in writes:
            _allow(ruleset, path, rights)
        _call(RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint(0))
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: Path, rights: int) -> None:
    """Grants rights on a path; one that is not there needs none."""
    try:
        handle = os.open(path, O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        is_folder = stat.S_ISDIR(os.fstat(handle).st_mode)
        rule = struct.pack("=Qi", rights if is_folder else rights & OF_FILES, handle)
        _call(ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(PATH_BENEATH), ctypes.c_char_p(rule), ctypes.c_uint(0))
    finally:
        os.close(handle)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _call(number: int, *arguments: object) -> int:
    found = int(_libc().syscall(ctypes.c_long(number), *arguments))
    if found < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"Landlock: {os.strerror(code)}")
    return found
