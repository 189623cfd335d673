"""build(variant) -> Artifact: one uniquely named Python extension, content-addressed.

The variant's own source is compiled once a variant: its C++ on the CPU, its device code on CUDA, where the cubin is
embedded into the library. It is linked with objects that are compiled once a toolchain: the Python binding and, on
CUDA, the host side that launches. Builds happen in a private directory and appear in the cache by one rename, so two
processes that build the same variant never see each other's half-made files, and no lock can be left behind.
"""

import contextlib
import errno
import hashlib
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from autotuner.forge.build_inputs import BuildInputs, abi_dir, binding, built_from, files_of, source_digests
from autotuner.forge.compiler_files import needs_more
from autotuner.forge.compiling import UNREAD, NotCompiled, run_compiler
from autotuner.forge.family import ABI_VERSION, Family
from autotuner.forge.linkable import require_apart
from autotuner.forge.toolchain import EXPORTS, HOST, NO_DISASSEMBLER, Toolchain
from autotuner.values import config
from autotuner.values.errors import DiskFullError, InputError, KernelError, ToolchainError
from autotuner.values.files import FULL, text_of, why
from autotuner.values.outcome import Artifact
from autotuner.values.problem import Problem
from autotuner.values.variant import Value, Variant, digest_of
from autotuner.values.verdict import Fault, Meaning, Verdict

T = TypeVar("T")

ABANDONED_S = 24 * 3600.0
PARTS = ("builds", "objects", "references", "compiled", "packages")
"""Of the cache: what is made there, and kept. `compiled`: baselines that a compiler of torch's makes;
`packages`: what programs have loaded."""
BUILDING = ".building-"
"""What the name of a build's private folder begins with."""
UNDECLARED = re.compile(r"'([A-Z][A-Z0-9_]*)' was not declared|identifier \"([A-Z][A-Z0-9_]*)\" is undefined")
"""What g++ and nvcc say of a name in capitals that nothing declares."""
MEANINGS = {
    "build.failed": Meaning("the compiler accepts the variant"),
    "build.timeout": Meaning("the compiler finishes within its deadline"),
}
"""What the codes of the faults assert that a build may end with, and what usually breaks it."""


def build(family: Family, variant: Variant, problem: Problem | None, toolchain: Toolchain) -> Artifact | Fault:
    """The variant's artifact, compiled unless the cache holds it.

    `problem` gives the compile-time part, and the lengths of a variant that fixes them; None for what computes no op.
    Returns a Fault when the compiler refuses the variant, takes longer than BUILD_DEADLINE_S, or makes a kernel the
    architecture cannot launch. Raises KernelError, ToolchainError, DiskFullError.
    """
    inputs = BuildInputs.of(family, variant, problem, toolchain)
    final = entry_of(inputs.digest)
    made = built(final) or _compile(inputs, final)
    if family.built_from and built_from(family, variant.backend, toolchain) != family.built_from:
        raise KernelError(f"{family.folder}: edited since this run began; the same command starts a new study")
    return made


def build_instrument(backend: str, name: str, parameters: Mapping[str, Value], toolchain: Toolchain) -> Artifact:
    """What the harness itself runs on a device, of kernels/instruments: built and loaded like variants, without torch.
    Raises ToolchainError when it cannot be built."""
    family = Family.load(config.kernels_dir() / "instruments")
    variant = Variant(family="instruments", backend=backend, impl=name, parameters=dict(parameters))
    made = build(family, variant, None, toolchain)
    if isinstance(made, Fault):
        raise ToolchainError(f"the instruments cannot be built: {made.detail}")
    return made


def _cache() -> Path:
    """The cache as an absolute path: the compiler runs in another directory."""
    return config.cache_dir().absolute()


def require_cache() -> None:
    """Makes the folders of the cache. Raises InputError, before any work, where nothing can be kept there."""
    folder = _cache()
    try:
        text_of(folder)
        for part in PARTS:
            (folder / part).mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        require_closed()
        if os.statvfs(folder).f_flag & os.ST_NOEXEC:
            raise InputError(
                f"the cache {folder} is mounted noexec, and libraries are loaded from there; set {config.CACHE} to"
                " another folder"
            )
    except OSError as error:
        if error.errno in FULL:
            raise DiskFullError(
                f"no space left for {folder}; free some or set {config.CACHE} to another folder"
            ) from None
        raise InputError(f"the cache {folder}: {why(error)}; set {config.CACHE} to another folder") from None


def require_closed() -> None:
    """Raises InputError where anybody may write to the cache: what lies there is loaded and run."""
    for folder in (_cache(), *(_cache() / part for part in PARTS)):
        if folder.exists() and folder.stat().st_mode & stat.S_IWOTH:
            raise InputError(
                f"the cache {folder}: every user may write there, and what lies there is run; `chmod -R o-w {_cache()}`"
                f", or set {config.CACHE} to another folder"
            )


def require_compilers(toolchain: Toolchain) -> None:
    """Tries the compilers on a unit of nearly nothing, once a toolchain: what they refuse now is no variant's fault.
    Raises ToolchainError with the remedy, and DiskFullError."""
    if shutil.which("objdump") is None:
        raise ToolchainError(NO_DISASSEMBLER)
    known = _cache() / "objects" / f"tried-{digest_of(toolchain.model_dump(mode='json'))[:16]}"
    if known.exists():
        return
    with private_directory(known) as private:
        (private / toolchain.unit).write_text(toolchain.trial)
        trial = partial(run_compiler, toolchain.compiled(toolchain.flags), private, ())
        try:
            trial()
        except NotCompiled as failed:
            refused, more = ToolchainError(toolchain.refused(failed.said)), needs_more()
            if more.exists() or not UNREAD.search(failed.said):
                raise refused from None
            more.touch()  # a wrapper, say, that calls programs which nobody has thought of
            try:
                trial()
            except NotCompiled:
                more.unlink()
                raise refused from None
        known.touch()


def entry_of(digest: str) -> Path:
    """The folder of that build in the cache, there or not."""
    return _cache() / "builds" / digest[:2] / digest


def entry_of_package(digest: str) -> Path:
    """The folder of that package in the cache, there or not."""
    return _cache() / "packages" / digest


def built(final: Path) -> Artifact | None:
    """The artifact in the cache, unless it is missing, another's, or its library is not the one that was recorded."""
    try:
        artifact = Artifact.model_validate_json((final / "artifact.json").read_bytes())
        extension = final / f"{artifact.name}.abi3.so"
        whole = hashlib.sha256(extension.read_bytes()).hexdigest() == artifact.library_sha256
        if whole and artifact.digest == final.name:
            with contextlib.suppress(OSError):
                os.utime(final)  # used now: what is pruned is what was used longest ago
            return artifact.model_copy(update={"path": str(extension), "build_seconds": 0.0})
    except (OSError, ValidationError):
        pass
    return None


def _compile(inputs: BuildInputs, final: Path) -> Artifact | Fault:
    started, toolchain = time.monotonic(), inputs.toolchain
    own = (abi_dir(),)  # no header of a family stands before the system's in what nobody looks at afterwards
    linked = shared_object(toolchain, binding(), own)
    ours = {f"{Path(name).stem}.o": shared_object(toolchain, abi_dir() / name, own) for name in toolchain.shared}
    with private_directory(final) as private:
        for name, compiled in ours.items():
            shutil.copy(compiled, private / name)
        if inputs.host:
            shutil.copy(shared_object(toolchain, inputs.host, inputs.include_dirs), private / HOST)
        for name, text in inputs.language.texts(inputs).items():
            (private / name).write_text(text)
        (private / EXPORTS).write_text(f"{{ global: PyInit_{inputs.name}; local: *; }};\n")
        try:
            steps, reads = toolchain.steps(inputs, linked), (*inputs.files, linked, *toolchain.reads)
            printed = "".join(run_compiler(command, private, reads) for command in steps)
            for name in {*toolchain.objects} - {*ours}:
                require_apart(private / name, (linked, *ours.values()))
            program, used = toolchain.program_hash(private), toolchain.resources(private, printed)
        except NotCompiled as failed:
            verdict = Verdict.BUILD_TIMEOUT if failed.late else Verdict.BUILD_FAILED
            said = failed.said + forgotten_macro(failed.said, inputs.macros)
            return Fault(verdict=verdict, code=verdict.replace("_", "."), detail=said)
        if isinstance(used, Fault):
            return used
        library = private / inputs.library
        artifact = Artifact(
            variant=inputs.variant,
            digest=inputs.digest,
            name=inputs.name,
            path=str(library),
            library_sha256=hashlib.sha256(library.read_bytes()).hexdigest(),
            program_hash=program,
            macros=inputs.macros,
            compiler=toolchain.version,
            flags=inputs.flags,
            architecture=toolchain.architecture,
            resources=used,
            interpreted=not inputs.language.is_binary,
            build_seconds=time.monotonic() - started,
        )
        (private / "artifact.json").write_text(artifact.model_dump_json(indent=1))
        _require_unedited(inputs.files, inputs.sources)
        published = publish(private, final, built)
    return published.model_copy(update={"build_seconds": artifact.build_seconds})


def _require_unedited(files: Iterable[Path], sources: Mapping[str, str]) -> None:
    """Raises KernelError where these are no longer what a digest was made of, before compilers read them."""
    if source_digests({path: path.read_bytes() if path.is_file() else b"" for path in files}) != sources:
        raise KernelError("a source was edited while it was compiled; run the command again")


@contextlib.contextmanager
def private_directory(final: Path | None = None) -> Iterator[Path]:
    """A fresh directory in the cache, removed afterwards whatever happens short of kill -9. `final`, to which it may
    be moved, gets its parent. Others may read it, and what it becomes, as this user's umask says."""
    started = False
    try:
        building = _cache() / "building"
        building.mkdir(parents=True, exist_ok=True)
        if final is not None:
            final.parent.mkdir(parents=True, exist_ok=True)
        for left in building.glob(f"{BUILDING}*"):  # by builds that were killed, and older than any build can be
            with contextlib.suppress(OSError):
                if time.time() - left.stat().st_mtime > ABANDONED_S:
                    shutil.rmtree(left, ignore_errors=True)
        private = building / f"{BUILDING}{secrets.token_hex(8)}"
        private.mkdir()
        started = True
        try:
            yield private
        finally:
            shutil.rmtree(private, ignore_errors=True)
    except OSError as error:
        if error.errno in FULL:
            raise DiskFullError(
                f"no space left for builds in {config.cache_dir()}; free some or set {config.CACHE} to another folder"
            ) from None
        if not started or error.errno in (errno.EACCES, errno.EROFS, errno.EPERM):
            raise DiskFullError(
                f"cannot write builds to {config.cache_dir()} ({error.strerror}); set {config.CACHE} to another folder"
            ) from None
        raise


def publish(private: Path, final: Path, whole: Callable[[Path], T | None]) -> T:
    """Moves what was finished into the cache; what was there first stays, unless it is not `whole`. Returns what that
    says of the one that is there. Raises OSError where an entry that is of no use cannot be replaced: EACCES for
    another user's."""
    for _ in range(8):
        with contextlib.suppress(OSError):
            private.rename(final)
        if (found := whole(final)) is not None:
            return found
        shutil.rmtree(final, ignore_errors=True)  # a damaged entry: make way
    for place in (final, final.parent):
        if place.exists() and not os.access(place, os.R_OK | os.W_OK | os.X_OK, effective_ids=True):
            raise OSError(errno.EACCES, f"{place} belongs to {_owner(place)}, and this user may not read or replace it")
    raise OSError(errno.EIO, f"{final} is damaged and cannot be replaced")


def _owner(path: Path) -> str:
    try:
        return path.owner()
    except KeyError:  # a number without a name, as in a container
        return f"user {path.stat().st_uid}"


def shared_object(
    toolchain: Toolchain, source: Path, include_dirs: tuple[Path, ...], plain: tuple[str, ...] = ()
) -> Path:
    """A source compiled once a toolchain, with its flags or `plain` ones: the Python binding, a host side, an op of
    torch. Raises ToolchainError when it cannot be."""
    flags = (
        *(plain or toolchain.binding_flags),
        *(f"-I{folder}" for folder in (*include_dirs, *toolchain.include_dirs)),
    )
    files = files_of([source], include_dirs)
    sources = source_digests(files)
    identity = [toolchain.model_dump(mode="json"), sources, flags, ABI_VERSION]
    folder = _cache() / "objects" / digest_of(identity)[:16]

    def whole(path: Path) -> bool:  # named after its contents: a damaged one is made anew
        return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == path.stem

    if (found := next(filter(whole, folder.glob("*.o")), None)) is not None:
        return found
    with private_directory(folder) as private:
        made = private / f"{source.stem}.o"
        command = [toolchain.compiler, *flags, "-c", str(source), "-o", str(made)]
        run_compiler(command, private, (*files, *toolchain.include_dirs))
        _require_unedited(files, sources)
        folder.mkdir(parents=True, exist_ok=True)
        final = folder / f"{hashlib.sha256(made.read_bytes()).hexdigest()}.o"
        try:  # what another one has made meanwhile stays: a linker's cage may be open for that very file
            os.link(made, final)
        except OSError:  # it is there, or the file system has no links
            if not whole(final):
                made.replace(final)
    return final


def forgotten_macro(said: str, macros: Mapping[str, str]) -> str:
    """The remedy where a source uses a name in capitals that no macro of the variant has; "" where it does not."""
    found = UNDECLARED.search(said)
    name = next(filter(None, found.groups()), "") if found is not None else ""
    if not name or name in macros:
        return ""
    return f"\n{name} is no macro of this variant: name it in `parameters` of kernel.toml and in the space file"
