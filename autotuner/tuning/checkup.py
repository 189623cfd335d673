"""What a bug report needs of this machine, each point with its remedy where something is wrong: what the rooms below
find out, what is around the devices, and the store."""

import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil

from autotuner.devices import DEVICES
from autotuner.devices.environment import builders, cpu_quota, environment, memory_limit, usable_cpus
from autotuner.devices.kind import Finding
from autotuner.ops import OPS
from autotuner.run import cage
from autotuner.values import config
from autotuner.values.errors import InputError
from autotuner.values.files import NETWORKS, file_system_of


def findings(store: str) -> Iterator[Finding]:
    """Of the machine, the store of that path or URL, and each kind of device with its cage."""
    yield from _around()
    yield _store(store)
    for name, part in (*OPS.tried(), *DEVICES.tried()):
        if isinstance(part, InputError):
            yield Finding.refused(name, part, blocks=False)
    for kind in sorted(DEVICES.values(), key=lambda kind: kind.preference):
        yield from kind.findings()
    for name, kind in DEVICES.items():
        if kind.missing() is None:
            lacks = ". ".join(cage.missing(kind.cage))
            yield Finding(f"cage of {name}", cage.summary(kind.cage) + (f"; {lacks}" if lacks else ""))


def _store(store: str) -> Finding:
    if "://" in store:
        return Finding("store", f"a {store.partition(':')[0]} database")
    path = Path(store).expanduser().absolute()
    kind = file_system_of(path.parent)
    remedy = "give --store a path on a local disk, or postgresql://..." if kind in NETWORKS else ""
    return Finding("store", f"{path} on {kind or 'an unknown file system'}", remedy)


SMALL_SHM = 256 << 20
"""Bytes of /dev/shm under which libraries that share memory between processes run short of it."""


def _around() -> Iterator[Finding]:
    """Versions, CPUs, memory, and the folders in which files are kept and libraries loaded."""
    yield Finding("versions", ", ".join(f"{name} {each}" for name, each in environment().items() if name != "cpus"))
    allowed, quota, there = len(os.sched_getaffinity(0)), cpu_quota(), os.cpu_count()
    limited = f", a quota of {quota:.1f}" if quota is not None else ""
    yield Finding("CPUs", f"{usable_cpus()} used: {there} here, {allowed} allowed{limited}; {builders()} compilers")
    limit, total = memory_limit(), psutil.virtual_memory()
    group = "" if limit is None else f", {_gib(limit)} allowed"
    yield Finding("memory", f"{_gib(total.total)}, {_gib(total.available)} free{group}")
    yield _folder("cache", config.cache_dir().absolute(), f"set {config.CACHE} to another folder")
    yield _folder("temporary files", Path(tempfile.gettempdir()), "set TMPDIR to another folder")
    shared = Path("/dev/shm")
    if shared.is_dir():
        size = psutil.disk_usage(str(shared)).total
        small = "give the container more (docker --shm-size 1g) where PyTorch's workers share tensors"
        yield Finding("/dev/shm", _gib(size), small if size < SMALL_SHM else "", blocks=False)


def _folder(name: str, folder: Path, remedy: str) -> Finding:
    """A folder that is written to, and from which libraries are loaded."""
    there = next(each for each in (folder, *folder.parents) if each.exists())
    mount = os.statvfs(there)
    said = (
        f"{folder} on {file_system_of(there) or 'an unknown file system'}, {_gib(mount.f_bavail * mount.f_frsize)} free"
    )
    if not os.access(there, os.W_OK | os.X_OK):
        return Finding(name, f"{said}; it cannot be written", remedy)
    if mount.f_flag & os.ST_NOEXEC:
        return Finding(name, f"{said}; it is mounted noexec, so no library is loaded from there", remedy)
    if there == folder and there.stat().st_mode & (stat.S_IWOTH | stat.S_ISVTX) == stat.S_IWOTH:
        return Finding(
            name, f"{said}; every user may write there, and what lies there is run", f"chmod o-w, or {remedy}"
        )
    return Finding(name, said)


def _gib(count: int) -> str:
    return f"{count / 2**30:,.1f} GiB"
