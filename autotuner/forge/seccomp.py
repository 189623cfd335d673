"""Seccomp: a process gives up system calls, for all of its threads and whatever it starts.

What is refused fails with EPERM, as for a user without rights: no variant needs it, and no library that one calls.
clone3 fails as on a kernel without it, since a filter cannot look at its flags: libraries use clone then.
"""

import ctypes
import errno
import os
import platform
import socket
import struct
from typing import NamedTuple

PR_SET_NO_NEW_PRIVS = 38
CAPABILITIES = 0x20080522
"""The version of the kernel's lists of rights."""
KEPT = 1 << 1 | 1 << 2 | 1 << 14
"""Of root's rights: on files of others, which Landlock guards, and to lock memory, which drivers of devices do."""
SET_MODE_FILTER = 1
ALL_THREADS, KEEP_SPECULATION = 1, 1 << 2
"""Flags. Without the second one older kernels slow down all that the process computes."""
ALLOW, ERRNO, KILL = 0x7FFF0000, 0x00050000, 0x80000000
LOAD, AND, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
NUMBER, ARCHITECTURE, FIRST_ARGUMENT, THIRD_ARGUMENT = 0, 4, 16, 32
"""Offsets in what the filter sees. Of an argument the lower half counts: process numbers, families and flags are
small."""
X32 = 0x40000000


MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
"""The kernel's number of each architecture, and its place in the table below."""

REFUSED = {
    **{"process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "pidfd_getfd": (438, 438), "kcmp": (312, 272)},
    **{"process_madvise": (440, 440), "userfaultfd": (323, 282), "perf_event_open": (298, 241), "bpf": (321, 280)},
    **{"io_uring_setup": (425, 425), "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219)},
    **{"mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51)},
    **{"open_tree": (428, 428), "fsopen": (430, 430), "mount_setattr": (442, 442), "move_mount": (429, 429)},
    **{"open_by_handle_at": (304, 265)},
    **{"setns": (308, 268), "unshare": (272, 97), "init_module": (175, 105), "finit_module": (313, 273)},
    **{"delete_module": (176, 106), "kexec_load": (246, 104), "kexec_file_load": (320, 294), "reboot": (169, 142)},
    **{"swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89), "quotactl": (179, 60), "syslog": (103, 116)},
    **{"settimeofday": (164, 170), "clock_settime": (227, 112), "adjtimex": (159, 171), "clock_adjtime": (305, 266)},
    **{"sethostname": (170, 161), "tkill": (200, 130), "pidfd_send_signal": (424, 424)},
    **{"shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195)},
    **{"semget": (64, 190), "semop": (65, 193), "semctl": (66, 191), "semtimedop": (220, 192)},
    **{"msgget": (68, 186), "msgsnd": (69, 189), "msgrcv": (70, 188), "msgctl": (71, 187), "mq_open": (240, 180)},
}
"""By name: the number on each machine."""
FORKS = (57, 58)
"""fork and vfork: x86 alone has them."""
EXEC = {"execve": (59, 221), "execveat": (322, 281)}
PRCTL, CONTROLS = (157, 167), (53, 26)
"""Of speculation and of the time stamp counter: both change how fast others are, or what time it seems to be."""
MMAP, PROTECT = (9, 222), {"mprotect": (10, 226), "pkey_mprotect": (329, 288)}
EXECUTABLE, WRITABLE = 4, 2
PERSONALITY = (135, 92)
"""It can make all memory executable."""
A_THREAD = 0x10000
"""The flag of clone that asks for one."""
PTRACE, SOCKET, SECCOMP = (101, 117), (41, 198), (317, 277)
CLONE, CLONE3 = (56, 220), (435, 435)
NAMESPACES = 0x7E020000
"""The flags of clone that ask for a namespace: of mounts, control groups, host names, messages, users, processes and
the network. One of clocks clone cannot ask for."""
OWN = {"prlimit64": (302, 261)}
"""Of the process itself alone (0, or its own number)."""
SIGNALS = {"kill": (62, 129), "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240)}
"""The same, where nothing else keeps signals within the cage."""


def machine() -> tuple[int, int] | None:
    """This machine's number and place; None where they are not known here."""
    return MACHINES.get(platform.machine())


def give_up_privileges() -> None:
    """Of root's rights this thread keeps those on files and memory alone, and no program that it starts has more rights
    than it has: sudo and the like do nothing. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(errno.EPERM, "the kernel has no no_new_privs")
    header, has = struct.pack("=Ii", CAPABILITIES, 0), ctypes.create_string_buffer(24)
    if libc.capget(ctypes.c_char_p(header), has) == 0:
        effective, permitted, *_ = struct.unpack("=6I", has.raw)
        left = struct.pack("=6I", effective & KEPT, permitted & KEPT, 0, 0, 0, 0)
        if libc.capset(ctypes.c_char_p(header), ctypes.c_char_p(left)):
            raise OSError(ctypes.get_errno(), "root's rights could not be given up")


class Walls(NamedTuple):
    """What is refused beside the calls of the table."""

    traces: bool = True
    """To trace other processes."""
    network: bool = True
    """To make a socket of a network."""
    sockets: bool = True
    """To make any other: a program that listens on one may start others, as those that run containers do."""
    signals: bool = True
    """To signal others."""
    processes: bool = True
    """To start a process, or another program."""
    code: bool = True
    """To make memory executable that is writable, or was."""


def refuse(walls: Walls, everywhere: bool = True) -> None:
    """From now on the calls of the table fail, and those of the walls: in all threads, or in this one and what it
    starts. Raises OSError."""
    here = machine()
    if here is None:
        raise OSError(errno.ENOSYS, f"no table of system calls for {platform.machine()}")
    libc = ctypes.CDLL(None, use_errno=True)
    program = _program(*here, walls)
    instructions = ctypes.create_string_buffer(program, len(program))
    filters = struct.pack("@HP", len(program) // 8, ctypes.addressof(instructions))
    flags = ctypes.c_uint(KEEP_SPECULATION | (ALL_THREADS if everywhere else 0))
    number = ctypes.c_long(SECCOMP[here[1]])
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.syscall(
        number, ctypes.c_uint(SET_MODE_FILTER), flags, ctypes.c_char_p(filters)
    ):
        code = ctypes.get_errno()
        raise OSError(code, f"seccomp: {os.strerror(code)}")


def _line(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    """One instruction; a jump skips that many."""
    return struct.pack("=HBBI", code, if_true, if_false, value)


PASS, FAIL = _line(RETURN, ALLOW), _line(RETURN, ERRNO | errno.EPERM)


def _program(audit: int, column: int, walls: Walls) -> bytes:
    """The filter: eight bytes an instruction."""
    lines = [_line(LOAD, ARCHITECTURE), _line(EQUAL, audit, 1, 0), _line(RETURN, KILL), _line(LOAD, NUMBER)]
    if column == 0:
        lines += [_line(AT_LEAST, X32, 0, 1), _line(RETURN, ERRNO | errno.ENOSYS)]

    def of(numbers: tuple[int, int], *body: bytes) -> None:
        """What happens to a call."""
        lines.extend([_line(EQUAL, numbers[column], 0, len(body)), *body])

    for numbers in (*REFUSED.values(), *([PTRACE] if walls.traces else [])):
        of(numbers, FAIL)
    of(CLONE3, _line(RETURN, ERRNO | errno.ENOSYS))
    first, third = _line(LOAD, FIRST_ARGUMENT), _line(LOAD, THIRD_ARGUMENT)
    threads_alone = (_line(ANY_BIT, A_THREAD, 1, 0), FAIL) if walls.processes else ()
    of(CLONE, first, _line(ANY_BIT, NAMESPACES, 0, 1), FAIL, *threads_alone, PASS)
    of(PRCTL, first, *(part for control in CONTROLS for part in (_line(EQUAL, control, 0, 1), FAIL)), PASS)
    if walls.network:
        own = () if walls.sockets else (first, _line(EQUAL, socket.AF_UNIX, 0, 1), PASS)
        of(SOCKET, *own, _line(RETURN, ERRNO | errno.EACCES))
    for numbers in (*OWN.values(), *(SIGNALS.values() if walls.signals else ())):
        of(numbers, first, _line(EQUAL, os.getpid(), 2, 0), _line(EQUAL, 0, 1, 0), FAIL, PASS)
    if walls.processes:
        for numbers in (*EXEC.values(), *([(number, number) for number in FORKS] if column == 0 else [])):
            of(numbers, FAIL)
    if walls.code:
        of(PERSONALITY, FAIL)
        of(MMAP, third, _line(AND, EXECUTABLE | WRITABLE), _line(EQUAL, EXECUTABLE | WRITABLE, 0, 1), FAIL, PASS)
        for numbers in PROTECT.values():
            of(numbers, third, _line(ANY_BIT, EXECUTABLE, 0, 1), FAIL, PASS)
    return b"".join([*lines, PASS])
