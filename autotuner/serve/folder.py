"""What every export that is a folder needs: the builds of its variants as they were proven, and a place to write to."""

import platform
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, Self

from elftools.common.exceptions import ELFError

from autotuner.devices import DEVICES
from autotuner.devices.kind import Packaging
from autotuner.forge.build import build, built, entry_of
from autotuner.forge.build_inputs import BuildInputs, abi_dir
from autotuner.forge.family import Family
from autotuner.forge.linkable import isolated
from autotuner.forge.toolchain import HOST, Forged, Toolchain
from autotuner.ops import OPS, Op
from autotuner.serve.table import digest_of_table
from autotuner.serve.table_source import symbol
from autotuner.spaces.space import SpaceFile
from autotuner.store.records import StudyRecord
from autotuner.tuning.workbench import toolchain_for
from autotuner.values.errors import DiskFullError, InputError
from autotuner.values.files import FULL, why
from autotuner.values.outcome import Artifact
from autotuner.values.table import DispatchTable, TableVariant
from autotuner.values.verdict import Fault
from autotuner.values.versions import version_of

NAME = re.compile(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*")
MOST_VARIANTS = 64
"""In one library; kernels/abi/package.h has room for as many."""
MARK = "AUTOTUNER_EXPORT"
"""A file in a folder that was exported: such a folder may be written again."""
PRIVATE = ".autotuner-"
"""How the names of folders begin that are there while an export is written."""


class Source(NamedTuple):
    """Where the variants of a table are built from."""

    toolchain: Toolchain
    near: Path
    """Where families are looked for first."""

    @classmethod
    def of(cls, study: StudyRecord) -> Self:
        """Raises ToolchainError where the compiler is not here."""
        return cls(toolchain_for(study.device), Path(SpaceFile.stored(study.space_document).path).resolve().parent)


def name_of(target: Path) -> str:
    """The name of an export, after its folder. Raises InputError."""
    name = target.absolute().name.lower().removeprefix("autotuner-").removeprefix("autotuner_")
    if not NAME.fullmatch(name):
        raise InputError(f"--out {target}: the folder's name becomes the name of a module: letters, digits and - only")
    return name.replace("-", "_")


def packaged(table: DispatchTable) -> tuple[Op, Packaging]:
    """The table's op, and what its kind of device says of exports that are machine code.

    Raises InputError where they say nothing, or the table has too many variants.
    """
    op, kind = OPS[table.op], DEVICES[table.device]
    if op.call is None or kind.packaging is None:
        raise InputError(f"variants of {table.op} for {table.device} are exported as json alone")
    if len(table.variants) > MOST_VARIANTS:
        raise InputError(f"the table has {len(table.variants)} variants, a package at most {MOST_VARIANTS}")
    return op, kind.packaging


def of_study(
    what: str, write: Callable[[DispatchTable, Source, Path], str]
) -> Callable[[DispatchTable | None, StudyRecord, Path], str]:
    """What writes a study's table as such a folder. It raises InputError where there is none."""

    def written(table: DispatchTable | None, study: StudyRecord, target: Path) -> str:
        if table is None:
            raise InputError(f"{what} serves what its table says: run `autotuner finals`, or take --estimates")
        if not table.variants:
            raise InputError("the table leaves every problem to torch: there is nothing to carry away; tune on")
        return write(table, Source.of(study), target)

    return written


def stated(table: DispatchTable, kind: Packaging) -> dict[str, object]:
    """What every such export says of itself in JSON."""
    return {
        "generator": f"autotuner {version_of('kernel-autotuner')}",
        "exported_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "platform": f"{platform.machine()}-{platform.system().lower()}",
        "instructions": kind.instructions(),
        "estimates": table.estimates,
        "table": table.model_dump(mode="json"),
        "table_digest": digest_of_table(table),
    }


def filled(template: str, said: Mapping[str, str]) -> str:
    """A template of the ABI with each @WORD@ in its place."""
    return re.sub(r"@([A-Z]+)@", lambda found: said[found[1]], (abi_dir() / template).read_text())


def linked(table: DispatchTable, source: Source, name: str, into: Path) -> list[Path]:
    """An object of each variant of the table, for the export of that name.

    Raises InputError where one cannot be had as it was proven.
    """
    return [_object(table, each, source, symbol(place, name), into) for place, each in enumerate(table.variants)]


def _object(table: DispatchTable, of: TableVariant, source: Source, name: str, into: Path) -> Path:
    """A build in the cache is the one that was proven, whatever the sources are today; its library and its objects are
    looked at."""
    problem, trial = next(each.problem for each in table.entries if each.use == of.artifact), f"trial {of.trial}"
    made: Artifact | Fault | None = built(entry_of(of.artifact))
    if made is None:
        family = Family.find(of.variant.family, near=source.near)
        inputs = BuildInputs.of(family, of.variant, problem, source.toolchain)
        made = build(family, of.variant, problem, source.toolchain) if inputs.digest == of.artifact else None
    if not isinstance(made, Artifact) or not _is_proven(made, of, source.toolchain):
        raise InputError(
            f"{trial} of {of.study} was built from other sources or by another compiler than are here: another program"
            " than the one that was proven; tune again"
        )
    folder = Path(made.path).parent
    if (folder / HOST).is_file():
        require_nothing(folder / HOST, packaged(table)[1], f"{trial} of {of.study}")
    return isolated(source.toolchain, folder, name, into)


def _is_proven(made: Artifact, of: TableVariant, toolchain: Toolchain) -> bool:
    """Whether a build is the one that the table names, library and objects."""
    try:
        program = toolchain.program_hash(Path(made.path).parent)
    except (OSError, Forged, ELFError):
        return False
    return (made.library_sha256, program) == (of.library_sha256, of.program)


def require_nothing(host: Path, kind: Packaging, of: str) -> None:
    """Raises InputError for a host side that needs what no export has."""
    needed = kind.needs(host.read_bytes())
    if needed is not None:
        raise InputError(f"{of} needs {needed} at run time: export json, or tune without it")


@contextmanager
def fresh(target: Path) -> Iterator[Path]:
    """A private folder beside the target, which takes its place if all goes well. A link stays: what it names is
    written.

    Raises InputError where something is there that is no export, or nothing can be written.
    """
    with _told(target):
        place = _place(target)
        place.parent.mkdir(parents=True, exist_ok=True)
        private = Path(tempfile.mkdtemp(prefix=PRIVATE, dir=place.parent))
    try:
        yield private
        private.chmod(0o755)
        (private / MARK).write_text("Written by autotuner export, and overwritten by the next one.\n")
        with _told(target):
            _put(private, place)
    finally:
        shutil.rmtree(private, ignore_errors=True)


def _place(target: Path) -> Path:
    """Where the folder is to be, after all links. Raises InputError where something else is there, OSError or
    RuntimeError where that cannot be told."""
    place = target.expanduser().resolve()
    try:
        mode = place.lstat().st_mode
    except FileNotFoundError:
        return place
    if not stat.S_ISDIR(mode) or (any(place.iterdir()) and not (place / MARK).is_file()):
        raise InputError(f"--out {target}: something else is there; name a new folder")
    return place


def _put(private: Path, place: Path) -> None:
    """Puts a folder into its place. What is there is set aside first, and is back where the new one cannot be put."""
    _place(place)  # looked at again: something else may have come there meanwhile
    aside = Path(tempfile.mkdtemp(prefix=PRIVATE, dir=place.parent))
    old = aside / place.name
    try:
        if place.exists():
            place.rename(old)
        private.rename(place)
    except BaseException:
        if old.exists():
            old.rename(place)
        aside.rmdir()
        raise
    shutil.rmtree(aside, ignore_errors=True)


@contextmanager
def _told(target: Path) -> Iterator[None]:
    """Makes one line of a system call that failed. Raises DiskFullError where there is no space, else InputError."""
    try:
        yield
    except (OSError, RuntimeError) as error:  # a loop of links is a RuntimeError before Python 3.13
        if isinstance(error, OSError) and error.errno in FULL:
            raise DiskFullError(f"--out {target}: the disk is full: free space and export again") from None
        raise InputError(f"--out {target}: {why(error)}; name another folder") from None
