"""Bundles: a study in one file that travels, with its rows, the sources and the builds of its finalists, and a page.

The same study gives the same bytes. A bundle that is read may come from anybody: it is unpacked in memory, within
bounds, no name in it becomes a path before it was compared with what such names look like, and nothing is written
unless all of it is as its manifest says.
"""

import gzip
import hashlib
import io
import json
import re
import subprocess
import tarfile
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import Field, ValidationError

from autotuner.forge.build import built, entry_of
from autotuner.forge.cache import Content, content_of, install
from autotuner.serve.table import inputs_of
from autotuner.store import Store, queries, whole_study
from autotuner.tuning.finals import standings
from autotuner.values.errors import InputError
from autotuner.values.files import read_regular, why, write_atomically
from autotuner.values.model import Model
from autotuner.values.outcome import Device
from autotuner.values.versions import version_of

PACKED, UNPACKED = 256 << 20, 1 << 30
"""Bytes of a bundle, and of what is in it, at most."""
MOST_FILES = 10_000
MANIFEST, ROWS, PAGE = "manifest.json", "study.json", "study.html"
PLACES = re.compile(
    r'(?<=path\\":\\")/[^"\\]*/(?=[^/"\\]+\.so\\"|search_spaces/)|(?<=\s)/[^\s"\\<]*/(?=search_spaces/)'
)
"""In rows, whose documents are text, and on the page: this machine's folders of builds and of shipped spaces."""
NAME = re.compile(r"(?!.*\.\.)[A-Za-z0-9_][A-Za-z0-9_.+-]*(/[A-Za-z0-9_][A-Za-z0-9_.+-]*){0,4}")
"""A file in a bundle."""


class Manifest(Model):
    """What a bundle has in it."""

    format: Literal["autotuner bundle 1"] = "autotuner bundle 1"
    generator: str
    revision: str = Field(description="of git, with + where files were changed; empty: not from a checkout")
    study: str
    device: Device
    environment: dict[str, str] = Field(description="versions and settings of the last session")
    compilers: tuple[str, ...]
    files: dict[str, str] = Field(description="SHA-256 of each file, by its name")


class Bundle(NamedTuple):
    """A bundle that was read, and is as its manifest says."""

    manifest: Manifest
    rows: whole_study.Data
    builds: tuple[Content, ...]


# Written --------------------------------------------------------------------------------------------------------------


def write(store: Store, study: str, target: Path, page: str) -> Manifest:
    """Writes the bundle of a study; `page`: its HTML. Raises StoreError, and InputError where it cannot be written."""
    record, sessions = queries.study(store, study), queries.sessions(store, study)
    best = standings.best(store, study)
    numbers = {*standings.every_confirmed(store, study), *([] if best is None else [best.record.number])}
    found = (store.outcome(study, number).artifact for number in sorted(numbers))
    artifacts = [each for each in found if each is not None]
    rows = PLACES.sub("", json.dumps(whole_study.data_of(store, study)))
    files = {ROWS: rows.encode(), PAGE: PLACES.sub("", page).encode()}
    for artifact in artifacts:
        inputs = inputs_of(record, artifact)
        for path in () if inputs is None else inputs.files:
            name = f"sources/{path.parent.name}/{path.name}"
            files |= {name: path.read_bytes()} if NAME.fullmatch(name) else {}
        kept = built(entry_of(artifact.digest))
        if kept is not None and kept.library_sha256 == artifact.library_sha256:
            files |= {f"builds/{artifact.digest}/{name}": data for name, data in content_of(kept).files}
    manifest = Manifest(
        generator=f"autotuner {version_of('kernel-autotuner')}",
        revision=_revision(),
        study=study,
        device=record.device,
        environment=sessions[-1].environment if sessions else {},
        compilers=tuple(dict.fromkeys(each.compiler for each in artifacts)),
        files={name: hashlib.sha256(data).hexdigest() for name, data in sorted(files.items())},
    )
    write_atomically(target, _packed({MANIFEST: manifest.model_dump_json(indent=1).encode(), **files}))
    return manifest


def _revision() -> str:
    """Of the checkout that this program runs from."""
    root = Path(__file__).parent.parent.parent

    def said(*words: str) -> str:
        found = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, timeout=10)
        return found.stdout.strip() if found.returncode == 0 else ""

    if not (root / ".git").exists():
        return ""
    with suppress(OSError, subprocess.TimeoutExpired):
        return said("rev-parse", "HEAD") + ("+" if said("status", "--porcelain", "--untracked-files=no") else "")
    return ""


def _packed(files: Mapping[str, bytes]) -> bytes:
    """An archive without anything that differs from one time to the next; the manifest comes first."""
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, data in sorted(files.items(), key=lambda each: (each[0] != MANIFEST, each[0])):
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), 0o644
            archive.addfile(info, io.BytesIO(data))
    return gzip.compress(whole.getvalue(), 9, mtime=0)


# Read -----------------------------------------------------------------------------------------------------------------


def read(path: Path) -> Bundle:
    """A bundle. Raises InputError, one line, for what is none, was cut off or changed, or is too large."""
    try:
        return _checked(_unpacked(read_regular(path, PACKED)))
    except (gzip.BadGzipFile, ValueError, EOFError, zlib.error, tarfile.TarError, RecursionError) as error:
        said = " ".join(str(error).split())[:200]
        raise InputError(f"{path}: no whole bundle of `autotuner bundle`: {said}; take another copy") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {why(error)}") from None


def _unpacked(packed: bytes) -> dict[str, bytes]:
    with gzip.GzipFile(fileobj=io.BytesIO(packed)) as stream:
        whole = stream.read(UNPACKED + 1)
    if len(whole) > UNPACKED:
        raise ValueError(f"it unpacks to more than {UNPACKED:,} bytes")
    files: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(whole), mode="r:") as archive:
        for member in archive:
            if len(files) >= MOST_FILES or not NAME.fullmatch(member.name) or member.name in files:
                raise ValueError(f"the file {member.name[:80]!r} has no place in it")
            if not member.isreg() or member.issparse() or member.size > len(whole):
                raise ValueError(f"{member.name} is no plain file")
            content = archive.extractfile(member)
            assert content is not None  # a regular file
            files[member.name] = content.read()
    return files


def _checked(files: dict[str, bytes]) -> Bundle:
    try:
        manifest = Manifest.model_validate_json(files.pop(MANIFEST, b""))
    except ValidationError as error:
        raise ValueError(f"{MANIFEST}: {error.errors()[0]['msg']}") from None
    found = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    if found != manifest.files:
        odd = sorted(found.items() ^ manifest.files.items())[0][0]
        raise ValueError(f"{odd} is not as its manifest says")
    rows = json.loads(files.get(ROWS, b"null"))
    if not isinstance(rows, dict):
        raise ValueError(f"{ROWS} has no rows")
    builds: dict[str, list[tuple[str, bytes]]] = {}
    for name, data in files.items():
        top, _, rest = name.partition("/")
        if top == "builds":
            digest, _, file = rest.partition("/")
            builds.setdefault(digest, []).append((file, data))
    if any(not re.fullmatch("[0-9a-f]{64}", digest) for digest in builds):
        raise ValueError("a build has no digest")
    return Bundle(manifest, rows, tuple(Content(digest, tuple(each)) for digest, each in builds.items()))


def bring(store: Store, bundle: Bundle, builds: bool) -> tuple[str, int]:
    """Writes the bundle's study into a store, and with `builds` those that the cache lacks into it; its name, and how
    many builds were brought. Raises InputError or StoreError."""
    name = whole_study.add(store, bundle.rows)
    missing = [each for each in bundle.builds if builds and built(entry_of(each.digest)) is None]
    for each in missing:
        try:
            install(each)
        except OSError as error:
            raise InputError(f"{name} is copied, its build {each.digest[:12]} is not: {why(error)}") from None
    return name, len(missing)
