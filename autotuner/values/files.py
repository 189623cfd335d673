"""Files that a person names: only regular files are read and written, and a file is written whole or not at all.

The tool may run as root, and a path may name anything: a device, a pipe, a folder. A rename would put a file in the
place of a device; a read of a pipe would wait for ever.
"""

import contextlib
import errno
import os
import secrets
import stat
from pathlib import Path

import psutil

from autotuner.values.errors import DiskFullError, InputError

FULL = (errno.ENOSPC, errno.EDQUOT)
"""The numbers of the errors of a disk that has no space left, or none for this user."""
FULL_WORDS = ("No space left on device", "Disk quota exceeded")
"""What a program says of these in English."""
NETWORKS = frozenset({"nfs", "nfs4", "cifs", "smb3", "lustre", "gpfs", "beegfs", "ceph", "glusterfs", "fuse.sshfs"})
"""File systems that several hosts share: SQLite's write-ahead log wants memory that all its users share."""

_KINDS = {
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a folder",
}


def read_regular(path: Path, most: int) -> bytes:
    """The content of a regular file of at most that many bytes.

    Raises OSError, whose `strerror` says why, for another kind of file, for a larger one and where it cannot be read.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe without a writer would block
    with open(handle, "rb") as file:
        kind = _kind(os.fstat(handle).st_mode)
        if kind is not None:
            raise OSError(errno.EINVAL, f"it is {kind}; expected a regular file", str(path))
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"it has more than {most:,} bytes", str(path))
    return content


def end_of(path: Path, most: int) -> bytes:
    """The end of a regular file, b"" for another one: whoever writes it may have put a link, a pipe or a device in its
    place, or a file that no memory holds. Raises OSError where it cannot be read, and for a link."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    with open(handle, "rb") as file:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode):
            return b""
        file.seek(max(0, about.st_size - most))
        return file.read(most)


def regular_target(path: Path, option: str = "") -> Path:
    """Where a file of that name is to be written: itself, or what it links to; a regular file, or nothing yet.

    Raises InputError for anything else, with the `option` to give another path by.
    """
    remedy = f"choose another {option}" if option else "give another path"
    try:
        target = path.expanduser().resolve()
        text_of(target)
        found = _mode(target)
    except (OSError, RuntimeError) as error:  # a loop of links is a RuntimeError before Python 3.13
        raise InputError(f"{path}: {why(error)}; {remedy}") from None
    kind = None if found is None else _kind(found)
    if kind is not None:
        raise InputError(f"{target} is {kind}: only a regular file is written; {remedy}")
    if not target.parent.is_dir() or not os.access(target.parent, os.W_OK | os.X_OK):
        raise InputError(f"{path}: its folder {target.parent} does not exist or cannot be written; {remedy}")
    return target


def write_atomically(path: Path, content: str | bytes) -> None:
    """Writes a file whole or not at all: a reader sees the old file or the new one.

    Raises DiskFullError when there is no space, InputError when the file cannot be written there.
    """
    target = regular_target(path)
    # In the same folder, because a rename is atomic only within a file system.
    private = target.with_name(f".autotuner-{secrets.token_hex(8)}.tmp")
    try:
        with open(private, "xb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        regular_target(target)  # what has appeared there meanwhile
        private.replace(target)
        _sync_folder(target.parent)
    except OSError as error:
        if error.errno in FULL:
            raise DiskFullError(f"{target}: the disk is full: free space and export again") from None
        raise InputError(f"{target} cannot be written ({why(error)}): give another path") from None
    finally:
        with contextlib.suppress(OSError):
            private.unlink(missing_ok=True)


def file_system_of(folder: Path) -> str:
    """The kind of file system of a folder, by the system's table of mounts; "" where it is not in there."""
    real = folder.resolve()
    over = [each for each in psutil.disk_partitions(all=True) if real.is_relative_to(each.mountpoint)]
    return max(over, key=lambda each: len(each.mountpoint)).fstype if over else ""


def text_of(path: Path) -> str:
    """The path as text that can be stored and shown. Raises OSError where it is not UTF-8."""
    text = str(path)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise OSError(errno.EILSEQ, "its path is not UTF-8; rename the folder or the file") from None
    return text


def why(error: Exception) -> str:
    """The reason of a failed system call, in words."""
    return (error.strerror if isinstance(error, OSError) else None) or " ".join(str(error).split())


def _mode(path: Path) -> int | None:
    """Of what is there, a link itself; None where there is nothing."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return path.lstat().st_mode
    return None


def _kind(mode: int) -> str | None:
    """What it is instead of a regular file, in words; None where it is one."""
    return None if stat.S_ISREG(mode) else _KINDS.get(stat.S_IFMT(mode), "no regular file")


def _sync_folder(folder: Path) -> None:
    """Makes the rename itself last. A system that cannot open folders has no such step."""
    with contextlib.suppress(PermissionError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
