"""What every export that is a folder needs: the builds of its variants as they were proven, and a place to write to."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from autotuner.build.build import build
from autotuner.build.build_inputs import BuildInputs
from autotuner.build.family import Family
from autotuner.build.linkable import isolated
from autotuner.build.toolchain import Toolchain
from autotuner.devices import DEVICES
from autotuner.devices.kind import Packaging
from autotuner.export.table_source import symbol
from autotuner.ops import OPS
from autotuner.ops.op import OpPackage
from autotuner.spaces.space import SpaceFile
from autotuner.store.records import StudyRecord
from autotuner.tuning.workbench import toolchain_for
from autotuner.values.errors import InputError
from autotuner.values.outcome import Artifact
from autotuner.values.table import Table, TableVariant

NAME = re.compile(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*")
MOST_VARIANTS = 64
"""In one library; kernels/abi/package.h has room for as many."""
MARK = "AUTOTUNER_EXPORT"
"""A file in a folder that was exported: such a folder may be written again."""


class Source(NamedTuple):
    """Where the variants of a table are built from."""

    toolchain: Toolchain
    near: Path
    """Where families are looked for first."""

    @classmethod
    def of(cls, study: StudyRecord) -> Source:
        """Raises ToolchainError where the compiler is not here."""
        return cls(toolchain_for(study.device), Path(SpaceFile.stored(study.space_document).path).resolve().parent)


def name_of(target: Path) -> str:
    """The name of an export, after its folder. Raises InputError."""
    name = target.absolute().name.lower().removeprefix("autotuner-").removeprefix("autotuner_")
    if not NAME.fullmatch(name):
        raise InputError(f"--out {target}: the folder's name becomes the name of a module: letters, digits and - only")
    return name.replace("-", "_")


def packaged(table: Table) -> tuple[OpPackage, Packaging]:
    """What the table's op and its kind of device say of exports that are machine code.

    Raises InputError where they say nothing, or the table has no variants, or too many.
    """
    op, kind = OPS[table.op], DEVICES[table.device]
    if op.package is None or kind.packaging is None:
        raise InputError(f"variants of {table.op} for {table.device} are exported as json alone")
    if not table.variants:
        raise InputError("the table leaves every problem to torch: there is nothing to carry away; tune on")
    if len(table.variants) > MOST_VARIANTS:
        raise InputError(f"the table has {len(table.variants)} variants, a package at most {MOST_VARIANTS}")
    return op.package, kind.packaging


def linked(table: Table, source: Source, into: Path) -> list[Path]:
    """An object of each variant of the table. Raises InputError where one cannot be had as it was proven."""
    return [_object(table, each, place, source, into) for place, each in enumerate(table.variants)]


def _object(table: Table, of: TableVariant, place: int, source: Source, into: Path) -> Path:
    problem = next(each.problem for each in table.entries if each.use == of.artifact)
    family = Family.find(of.variant.family, near=source.near)
    inputs = BuildInputs.of(family, of.variant, problem, source.toolchain)
    if inputs.host is not None:
        require_no_cublas(inputs.host, f"trial {of.trial} of {of.study}")
    made = build(family, of.variant, problem, source.toolchain) if inputs.digest == of.artifact else None
    if not isinstance(made, Artifact) or made.program_hash != of.program:
        raise InputError(
            f"trial {of.trial} of {of.study} was built from other sources or by another compiler than are here: another"
            " program than the one that was proven; tune again"
        )
    return isolated(inputs, Path(made.path).parent, symbol(place), into)


def require_no_cublas(host: Path, of: str) -> None:
    """Raises InputError for a host side that calls cuBLAS: it would have to be there at run time, in the version that
    was proven."""
    if b"<cublasLt.h>" in host.read_bytes():
        raise InputError(f"{of} needs cuBLAS at run time: export json, or tune without it")


@contextmanager
def fresh(target: Path) -> Iterator[Path]:
    """A private folder beside the target, which takes its place if all goes well.

    Raises InputError where something is there that is no export, or nothing can be written.
    """
    if target.exists() and not (target / MARK).is_file() and not (target.is_dir() and not any(target.iterdir())):
        raise InputError(f"--out {target}: something else is there; name a new folder")
    try:
        target.absolute().parent.mkdir(parents=True, exist_ok=True)
        private = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.absolute().parent))
    except OSError as error:
        raise InputError(f"--out {target}: {error.strerror}; name another folder") from None
    try:
        yield private
        private.chmod(0o755)
        (private / MARK).write_text("Written by autotuner export, and overwritten by the next one.\n")
        shutil.rmtree(target, ignore_errors=True)
        private.rename(target)
    finally:
        shutil.rmtree(private, ignore_errors=True)
