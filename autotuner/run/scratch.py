"""The folders in which processes of jobs may write: one for each process, all in one of the driver's.

The driver holds a lock on its folder. What a killed driver left behind is known by the lock that nobody holds, and is
removed by the next one.
"""

import contextlib
import fcntl
import os
import shutil
import stat
import subprocess
import tempfile
import time
from pathlib import Path

from autotuner.values.errors import InputError

PREFIX = "autotuner-scratch-"
LOCK = "lock"
NEW_S = 60.0
"""Seconds for which a folder without a lock is left alone: its driver may be about to make one."""


class Scratch:
    """A driver's folder of folders."""

    def __init__(self) -> None:
        """Makes it in the system's folder for such things, and removes those of drivers that are no more. Raises
        InputError where nothing can be executed there."""
        remove_abandoned(Path(tempfile.gettempdir()))
        require_executable(Path(tempfile.gettempdir()))
        self._folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        made = self._folder / f"{LOCK}.new"
        self._lock = os.open(made, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        made.rename(self._folder / LOCK)  # one that nobody holds is a driver's that has gone
        self._next = 0

    def folder(self) -> Path:
        """A new folder, for one process."""
        self._next += 1
        made = self._folder / str(self._next)
        made.mkdir(mode=0o700)
        return made

    def close(self) -> None:
        """Removes all of it. May be called twice."""
        remove(self._folder)
        with contextlib.suppress(OSError):
            os.close(self._lock)


def remove(folder: Path) -> None:
    """Removes a folder and all in it, as far as that can be: a variant may have made folders in folders without end."""
    try:
        shutil.rmtree(folder, ignore_errors=True)
    except RecursionError:
        subprocess.run(["rm", "-rf", "--", str(folder)], check=False)


def require_executable(folder: Path) -> None:
    """Raises InputError where no library can be loaded from there: copies of variants are."""
    if os.statvfs(folder).f_flag & os.ST_NOEXEC:
        raise InputError(
            f"{folder} is mounted noexec, and copies of variants are loaded from there; set TMPDIR to another folder"
        )


def remove_abandoned(parent: Path) -> None:
    """Removes the folders there that are ours, and whose driver has gone."""
    for found in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            about = found.lstat()
            if stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid() and _is_abandoned(found, about.st_mtime):
                remove(found)


def _is_abandoned(folder: Path, changed: float) -> bool:
    try:
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return time.time() - changed > NEW_S
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
