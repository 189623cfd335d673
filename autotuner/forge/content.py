"""A build as a message: its files, named by its digest, for a machine that lacks it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

from autotuner.forge.build import built, entry_of, private_directory, publish
from autotuner.values.outcome import Artifact


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
        return publish(private, final)
