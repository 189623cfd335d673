"""The cache on disk: what builds and references take there, and how it is made smaller.

An entry is a folder of `builds/`, `compiled/` or `packages/`, or a file of `references/`. Its modification time is when
it was last used. Whatever is removed is made again when it is needed.
"""

import contextlib
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from pydantic import Field

from autotuner.forge.build import built, entry_of, private_directory, publish
from autotuner.values import config
from autotuner.values.model import Model
from autotuner.values.outcome import Artifact

IN_USE_S = 3600.0
"""Seconds since its last use for which an entry is never removed: a sweep may be about to load it."""
KINDS = ("builds", "references")


class CacheEntry(Model):
    """A build or a reference."""

    kind: str
    path: str
    bytes: int
    used_at: float = Field(description="seconds since 1970")


class Usage(Model):
    """What the cache holds."""

    path: str
    builds: int
    builds_bytes: int
    references: int
    references_bytes: int
    oldest_use: float | None = Field(description="seconds since 1970; null for an empty cache")

    @property
    def bytes(self) -> int:
        """Of both."""
        return self.builds_bytes + self.references_bytes


class Pruned(Model):
    """What was removed."""

    removed: int
    bytes: int
    left: Usage


def usage() -> Usage:
    """What the cache holds now."""
    return _usage(list(_entries()))


def prune(most_bytes: int | None = None, unused_s: float | None = None) -> Pruned:
    """Removes what was not used for so long, and then what was used longest ago, until the rest takes `most_bytes`.

    What was used within the last hour stays. An entry goes by one rename: a reader finds it whole or not at all.
    """
    now, entries = time.time(), sorted(_entries(), key=lambda entry: entry.used_at)
    total, removed, freed = sum(entry.bytes for entry in entries), 0, 0
    kept: list[CacheEntry] = []
    for entry in entries:
        idle = now - entry.used_at
        wanted = (unused_s is not None and idle > unused_s) or (most_bytes is not None and total - freed > most_bytes)
        if wanted and idle > IN_USE_S and _remove(Path(entry.path)):
            removed, freed = removed + 1, freed + entry.bytes
        else:
            kept.append(entry)
    return Pruned(removed=removed, bytes=freed, left=_usage(kept))


def is_there(artifact: Artifact) -> bool:
    """Whether a build's library is still there; that of the fake device has no path."""
    return not artifact.path or Path(artifact.path).exists()


def keep(artifact: Artifact) -> bool:
    """Says that a build is used now, so that it stays; whether it is there."""
    if artifact.path:
        with contextlib.suppress(OSError):  # it is gone, or another user's, who may remove it
            os.utime(Path(artifact.path).parent)
    return is_there(artifact)


def _usage(entries: Sequence[CacheEntry]) -> Usage:
    of = {kind: [entry for entry in entries if entry.kind == kind] for kind in KINDS}
    return Usage(
        path=str(config.cache_dir()),
        builds=len(of["builds"]),
        builds_bytes=sum(entry.bytes for entry in of["builds"]),
        references=len(of["references"]),
        references_bytes=sum(entry.bytes for entry in of["references"]),
        oldest_use=min((entry.used_at for entry in entries), default=None),
    )


def _entries() -> Iterator[CacheEntry]:
    """Everything that can go; what vanishes meanwhile is left out."""
    root = config.cache_dir()
    patterns = {"builds": ("builds/*/*", "compiled/*", "packages/*"), "references": ("references/*.truth",)}
    for kind in KINDS:
        for path in chain.from_iterable(map(root.glob, patterns[kind])):
            with contextlib.suppress(OSError):
                used = path.stat().st_mtime
                yield CacheEntry(kind=kind, path=str(path), bytes=_size(path), used_at=used)


def _size(path: Path) -> int:
    files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
    return sum(each.stat().st_size for each in files)


def _remove(path: Path) -> bool:
    """Whether it is gone, and not by somebody else."""
    if path.is_symlink() or path.is_file():
        with contextlib.suppress(OSError):
            path.unlink()
            return True
        return False
    with private_directory() as private:
        try:
            path.rename(private / path.name)
        except OSError:
            return False
        shutil.rmtree(private / path.name, ignore_errors=True)
    return True


# A build as a message, for a machine that lacks it ----------------------------------------------------------------


class Content(NamedTuple):
    """The files of a build."""

    digest: str
    files: tuple[tuple[str, bytes], ...]
    """Name and bytes of each."""


def content_of(artifact: Artifact) -> Content:
    """The files of a build that lies on this machine. Raises OSError where it does not."""
    files = sorted(path for path in Path(artifact.path).parent.iterdir() if path.is_file())
    return Content(artifact.digest, tuple((path.name, path.read_bytes()) for path in files))


def found(artifact: Artifact) -> Artifact | None:
    """The same library in the cache of this machine, as it lies here; None where it is missing, or is another one."""
    here = built(entry_of(artifact.digest))
    return here if here is not None and here.library_sha256 == artifact.library_sha256 else None


def install(content: Content) -> Artifact:
    """Puts a build into the cache of this machine in the place of what is there under its digest; as it lies here.
    Raises DiskFullError, and OSError where the files are not those that were built."""
    final = entry_of(content.digest)
    with private_directory(final) as private:
        for name, data in content.files:
            (private / Path(name).name).write_bytes(data)
        shutil.rmtree(final, ignore_errors=True)
        return publish(private, final, built)
