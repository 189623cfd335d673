"""The cage of a process that runs variants: what the operating system keeps it from, from the first variant on.

It is entered once for a process, before the first library of a variant is loaded, and cannot be left. What the machine
lacks is left out and named; nothing of it is a reason not to judge. docs/method/isolation.md says what it is worth.
"""

import contextlib
import resource
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, Self

from autotuner.devices.environment import usable_memory
from autotuner.devices.kind import Cage
from autotuner.forge import compiler_files, landlock, seccomp
from autotuner.forge.build import PARTS
from autotuner.values import config

SYSTEM = (
    *("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/nix/store", "/proc", "/sys", "/etc/alternatives"),
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime", "/etc/nsswitch.conf"),
    *("/etc/passwd", "/etc/group"),
)
"""What every program reads."""
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
MOST_FILES, MOST_PROCESSES = 4096, 1 << 14
"""Open files of a process; processes and threads of the user."""
LARGEST_FILE = 1 << 32
"""Bytes."""


class CageParts(NamedTuple):
    """The walls of a kind of device, and all that its process reads."""

    kind: Cage
    reads: tuple[Path, ...]

    @classmethod
    def of(cls, kind: Cage, reads: Iterable[Path] = ()) -> Self:
        """`reads`: what is to be read beside the system, Python and the cache. Found out once, by the driver: it takes
        longer than to enter the cage."""
        found = {*_readable(), *reads, *_matching(kind.reads)}
        return cls(kind, tuple(sorted(path for path in found if path.exists())))


class Work(NamedTuple):
    """What the process is about to do."""

    dtype: str
    """Element type of its problems."""
    writes_code: bool = False
    """A baseline of them writes machine code for any."""
    sanitizes: bool = False
    """It builds and runs programs that trace, and that reserve more memory than there is."""


def enter(parts: CageParts, folder: Path, work: Work) -> None:
    """Enters the cage; `folder` is where the process writes.

    Raises OSError where the machine has a wall, by `missing`, and it cannot be put up.
    """
    kind, sanitizes = parts.kind, work.sanitizes
    seccomp.give_up_privileges()
    limit(memory=kind.memory and not sanitizes)
    if sanitizes and not kind.tools:
        return
    scoped = landlock.version() >= landlock.WITH_SCOPES and kind.files
    if kind.files and landlock.version():
        landlock.restrict(parts.reads, [folder, *map(Path, DEVICES), *_matching(kind.writes)])
    if seccomp.machine() is not None:
        walls = seccomp.Walls(
            traces=not sanitizes,
            network=kind.network,
            sockets=kind.processes,
            signals=not scoped and not sanitizes,
            processes=kind.processes and not sanitizes,
            code=not (work.dtype in kind.compiles or work.writes_code or sanitizes),
        )
        seccomp.refuse(walls)


def missing(kind: Cage) -> list[str]:
    """The walls that this machine or this kind of device lacks, in words: what a variant could do for want of them."""
    found = []
    version = landlock.version()
    if not (kind.files and version):
        why = "Landlock is not in this kernel" if not version else "left out for this kind of device"
        who = "a variant can" if version else "a variant, and a compiler of its source, can"
        found.append(f"files: {why}; {who} read and write what you can")
    if not seccomp.machine():
        why = "its numbers are not known for this processor"
        found.append(f"system calls: {why}; a variant can use the network, trace and signal other processes")
    else:
        left_out = {"network": kind.network, "processes": kind.processes}
        found += [f"{name}: left out for this kind of device" for name, there in left_out.items() if not there]
    if kind.compiles:
        types = " and ".join(kind.compiles)
        who = f"libraries write some for {types}, and a baseline may for any"
        found.append(f"code: {who}, so a variant can then make memory executable")
    if compiler_files.needs_more().exists():
        found.append("builds: a compiler here calls more than is known of; a source can take in any system file")
    if not kind.memory:
        found.append("memory: the driver of this kind of device reserves more than there is, so it has no limit")
    return found


def summary(kind: Cage) -> str:
    """What the cage is made of here, in a few words."""
    version = landlock.version() if kind.files else 0
    parts = ["limits", *([f"landlock {version}"] if version else [])]
    return ", ".join([*parts, *(["seccomp"] if seccomp.machine() else [])])


def described(kind: Cage) -> dict[str, str]:
    """What there is of the cage here, and what lacks where something does: for the environment of a session."""
    lacks = missing(kind)
    return {"cage": summary(kind), **({"cage_lacks": ". ".join(lacks)} if lacks else {})}


def limit(memory: bool) -> None:
    """Limits of the system: open files, processes, the size of a file, and data."""
    wanted = {
        resource.RLIMIT_NOFILE: MOST_FILES,
        resource.RLIMIT_NPROC: MOST_PROCESSES,
        resource.RLIMIT_FSIZE: LARGEST_FILE,
    }
    if memory:
        wanted[resource.RLIMIT_DATA] = usable_memory()
    for what, most in wanted.items():
        _, hard = resource.getrlimit(what)
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(what, (least, least))


def _readable() -> Iterator[Path]:
    """Python with its packages, the system's programs and libraries, the shipped kernels, what was built."""
    yield from map(Path, SYSTEM)
    roots = [Path(each) for each in {sys.prefix, sys.base_prefix, sys.exec_prefix, *sysconfig.get_paths().values()}]
    yield from roots
    yield from _modules(roots)
    yield from (*config.library_dirs(), config.kernels_dir(), *config.toolkits())
    yield from (config.cache_dir().absolute() / part for part in PARTS)


def _modules(roots: list[Path]) -> Iterator[Path]:
    """The packages in other places that this process has imported: this one in a checkout, plugins."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if "." in name or not file or any(Path(file).is_relative_to(root) for root in roots):
            continue
        yield Path(file).parent if hasattr(module, "__path__") else Path(file)


def _matching(patterns: Iterable[str]) -> Iterator[Path]:
    for pattern in patterns:
        yield from Path("/").glob(pattern.removeprefix("/"))
