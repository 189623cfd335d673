"""build(variant) -> Artifact: one uniquely named Python extension, content-addressed, made by ninja.

The device code (for the CPU backend: the variant's own C++) is compiled once a variant and linked with a binding that
is compiled once a toolchain. Builds happen in a private directory and appear in the cache by one rename, so two
processes that build the same variant never see each other's half-made files, and no lock can be left behind.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import Field, ValidationError

from autotuner import config
from autotuner.errors import DiskFullError, ToolchainError
from autotuner.kernel import Kernel
from autotuner.model import Model
from autotuner.objectfile import program_hash, text_bytes
from autotuner.outcome import Artifact, Fault, Verdict
from autotuner.problem import Problem
from autotuner.variant import Variant, digest_of

BUILD_DEADLINE_S = 300.0
ABANDONED_S = 24 * 3600.0
ABI_VERSION = 1
COMMON_FLAGS = (
    "-std=c++17",
    "-O3",
    "-march=native",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fPIC",
    "-fvisibility=hidden",
    "-pthread",
    "-fstack-usage",
)
INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*["<]([^">]+)[">]', re.MULTILINE)
ERROR = re.compile(r"\b(error|ERROR): |undefined reference|: multiple definition")
"""What the line of a compiler's or linker's first error contains."""


class Toolchain(Model):
    """A C++ compiler and the machine it compiles for."""

    compiler: str
    version: str
    architecture: str = Field(description="what -march=native means here: CPU name and a digest of the target options")
    binding_flags: tuple[str, ...] = COMMON_FLAGS

    @classmethod
    def discover(cls) -> Toolchain:
        """Finds the C++ compiler and tries it. Raises ToolchainError with the remedy."""
        compiler = config.cxx()
        if compiler is None:
            wanted = os.environ.get("CXX", "g++")
            raise ToolchainError(f"no C++ compiler: {wanted} is not on the PATH; install one (apt-get install g++)")
        version, *_ = _ask(compiler, "--version").splitlines() or [""]
        target = _ask(compiler, "-march=native", "-Q", "--help=target")
        march = re.search(r"-march=\s+(\S+)", target)
        if not version or march is None:
            raise ToolchainError(f"{compiler} does not say what -march=native means; is it a working g++?")
        digest = hashlib.sha256(target.encode()).hexdigest()[:12]
        return cls(compiler=compiler, version=version, architecture=f"{march[1]}-{digest}")


def _ask(compiler: str, *arguments: str) -> str:
    """The standard output of a compiler query."""
    try:
        done = subprocess.run([compiler, *arguments], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise ToolchainError(f"{compiler} {' '.join(arguments)} failed: {error}; is it a working g++?") from None
    return done.stdout


class Recipe(Model):
    """All that goes into one artifact, and its identity."""

    variant: Variant
    dtype: str
    head_dim: int
    causal: bool
    toolchain: Toolchain
    flags: tuple[str, ...]
    source: Path
    include_dirs: tuple[Path, ...]
    digest: str

    @classmethod
    def of(cls, kernel: Kernel, variant: Variant, problem: Problem, toolchain: Toolchain) -> Recipe:
        """Raises KernelError when the family does not take the variant or the problem."""
        kernel.admit(variant, problem)
        implementation = kernel.implementation(variant.backend, variant.impl)
        source = kernel.folder / implementation.source
        abi = config.kernels_dir() / "abi"
        include_dirs = (abi, kernel.folder)
        flags = (*COMMON_FLAGS, *implementation.flags)
        identity = {
            "variant": variant.model_dump(mode="json"),
            "compiled_for": [problem.op, problem.dtype, problem.head_dim, problem.causal],
            "toolchain": toolchain.model_dump(mode="json"),
            "flags": flags,
            "sources": source_digests([source, abi / "binding.cpp"], include_dirs),
            "abi": ABI_VERSION,
        }
        return cls(
            variant=variant,
            dtype=problem.dtype,
            head_dim=problem.head_dim,
            causal=problem.causal,
            toolchain=toolchain,
            flags=flags,
            source=source,
            include_dirs=include_dirs,
            digest=digest_of(identity),
        )

    @property
    def name(self) -> str:
        """The extension's module name: unique to the artifact."""
        return f"{self.variant.family}_{self.variant.impl}_{self.digest[:16]}"

    @property
    def macros(self) -> dict[str, str]:
        """Name and value, as text, of every macro the binary must report."""
        compiled_for = {"DTYPE": self.dtype, "HEAD_DIM": str(self.head_dim), "CAUSAL": str(int(self.causal))}
        return {**{name: str(value) for name, value in self.variant.parameters.items()}, **compiled_for}


def built_from(kernel: Kernel, backend: str, toolchain: Toolchain) -> str:
    """A digest of what every artifact of a family is made from: its sources, the ABI, the compiler, the machine."""
    implementations = (kernel.document.cpu if backend == "cpu" else kernel.document.cuda).values()
    abi = config.kernels_dir() / "abi"
    sources = [kernel.folder / "kernel.toml", abi / "binding.cpp", *(kernel.folder / i.source for i in implementations)]
    digests = source_digests(sources, (abi, kernel.folder))
    return digest_of([sorted(digests.items()), toolchain.model_dump(mode="json"), ABI_VERSION])


def source_digests(sources: list[Path], include_dirs: tuple[Path, ...]) -> dict[str, str]:
    """SHA-256 of each source and of every header of ours that it includes, however deep; system headers belong to the
    compiler's version."""
    digests: dict[str, str] = {}
    seen: set[Path] = set()
    waiting = list(sources)
    while waiting:
        path = waiting.pop().resolve()
        if path in seen:
            continue
        seen.add(path)
        text = path.read_bytes()
        key = f"{path.parent.name}/{path.name}"
        while key in digests:  # another file of that name, in another folder of that name
            key += "+"
        digests[key] = hashlib.sha256(text).hexdigest()
        for included in INCLUDE.findall(text):
            for folder in (path.parent, *include_dirs):
                if (folder / os.fsdecode(included)).is_file():
                    waiting.append(folder / os.fsdecode(included))
                    break
    return digests


def macro_lines(parameters: Mapping[str, int | str]) -> Iterator[str]:
    """The #define of each parameter: integers as they are; a string value v of P becomes P_V, defined to 1."""
    for name, value in parameters.items():
        if isinstance(value, str):
            yield f"#define {name}_{re.sub(r'[^A-Z0-9]', '_', value.upper())} 1"
        else:
            yield f"#define {name} {value}"


def _report_lines(recipe: Recipe) -> Iterator[str]:
    """The table of macros as the preprocessor holds them after the variant's source, as NAME=VALUE lines."""
    for name, value in recipe.variant.parameters.items():
        if isinstance(value, str):
            flag = f"{name}_{re.sub(r'[^A-Z0-9]', '_', value.upper())}"
            yield f'#if {flag} == 1\n"{name}={value}\\n"\n#endif'
        else:
            yield f'"{name}=" AT_TEXT({name}) "\\n"'
    yield f'#if DTYPE == AT_{recipe.dtype.upper()}\n"DTYPE={recipe.dtype}\\n"\n#endif'
    yield '"HEAD_DIM=" AT_TEXT(HEAD_DIM) "\\n"'
    yield '"CAUSAL=" AT_TEXT(CAUSAL) "\\n"'


def unit_text(recipe: Recipe) -> str:
    """The translation unit: macros, the variant's source, and what the binary says about itself."""
    head = [
        *macro_lines(recipe.variant.parameters),
        f"#define DTYPE AT_{recipe.dtype.upper()}",
        f"#define HEAD_DIM {recipe.head_dim}",
        f"#define CAUSAL {int(recipe.causal)}",
        f'#include "{recipe.source.name}"',
        '#include "identity.h"',
    ]
    identity = [
        f'__attribute__((section(".at_build_id"))) static const char at_build_id[] = "{recipe.digest}";',
        '__attribute__((section(".at_macros"))) static const char at_macros[] =',
        *_report_lines(recipe),
        '"";',
        'extern "C" __attribute__((section(".at_identity"), used)) const at_identity variant_identity = {',
        "    AT_ABI_VERSION, (int32_t)sizeof(at_call), at_build_id, at_macros, variant_workspace, variant_run};",
    ]
    return "\n".join([*head, *identity, ""])


def build(kernel: Kernel, variant: Variant, problem: Problem, toolchain: Toolchain) -> Artifact | Fault:
    """The variant's artifact, compiled unless the cache holds it.

    `problem` gives the compile-time part: dtype, head_dim, causal. Returns a Fault when the compiler refuses the
    variant or takes longer than BUILD_DEADLINE_S. Raises KernelError, ToolchainError, DiskFullError.
    """
    recipe = Recipe.of(kernel, variant, problem, toolchain)
    final = _cache() / "builds" / recipe.digest[:2] / recipe.digest
    return _cached(final) or _compile(recipe, final)


def _cache() -> Path:
    """The cache as an absolute path: the compiler runs in another directory."""
    return config.cache_dir().absolute()


def _cached(final: Path) -> Artifact | None:
    """The artifact in the cache, unless it is missing or its library is not the one that was recorded."""
    try:
        artifact = Artifact.model_validate_json((final / "artifact.json").read_bytes())
        library = final / f"{artifact.name}.abi3.so"
        if hashlib.sha256(library.read_bytes()).hexdigest() == artifact.library_sha256:
            return artifact.model_copy(update={"path": str(library), "build_seconds": 0.0})
    except (OSError, ValidationError):
        pass
    return None


def _compile(recipe: Recipe, final: Path) -> Artifact | Fault:
    started = time.monotonic()
    with _private_directory(final) as private:
        ninja = _ninja_text(recipe, _binding_object(recipe.toolchain, recipe.include_dirs[0]))
        (private / "unit.cpp").write_text(unit_text(recipe))
        (private / "build.ninja").write_text(ninja)
        done = _run_ninja(private)
        if isinstance(done, Fault):
            return done
        artifact = _describe(recipe, private, time.monotonic() - started)
        (private / "artifact.json").write_text(artifact.model_dump_json(indent=1))
        published = _publish(private, final)
    return published.model_copy(update={"build_seconds": artifact.build_seconds})


@contextlib.contextmanager
def _private_directory(final: Path) -> Iterator[Path]:
    """A fresh directory on `final`'s file system, removed afterwards whatever happens short of kill -9."""
    started = False
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        building = _cache() / "building"
        building.mkdir(exist_ok=True)
        _remove_abandoned(building)
        private = Path(tempfile.mkdtemp(prefix=".building-", dir=building))
        started = True
        try:
            yield private
        finally:
            shutil.rmtree(private, ignore_errors=True)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFullError(
                f"no space left for builds in {config.cache_dir()}; free some or set {config.CACHE} to another folder"
            ) from None
        if not started or error.errno in (errno.EACCES, errno.EROFS, errno.EPERM):
            raise DiskFullError(
                f"cannot write builds to {config.cache_dir()} ({error.strerror}); set {config.CACHE} to another folder"
            ) from None
        raise


def _remove_abandoned(building: Path) -> None:
    """Removes what builds that were killed left behind, once it is older than any build can be."""
    for left in building.iterdir():
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > ABANDONED_S:
                shutil.rmtree(left, ignore_errors=True)


def _publish(private: Path, final: Path) -> Artifact:
    """Moves a finished build into the cache; a build of the same artifact that was there first stays. Returns the one
    that is there."""
    for _ in range(8):
        with contextlib.suppress(OSError):
            private.rename(final)
        if (artifact := _cached(final)) is not None:
            return artifact
        shutil.rmtree(final, ignore_errors=True)  # a damaged entry: make way
    raise OSError(errno.EIO, f"{final} is damaged and cannot be replaced")


def _ninja_path(path: Path | str) -> str:
    """A path as a file name of a ninja statement."""
    return re.sub(r"([$ :])", r"$\1", str(path))


def _ninja_word(word: Path | str) -> str:
    """A word of a command of a ninja rule."""
    return shlex.quote(str(word)).replace("$", "$$")


def _ninja_text(recipe: Recipe, binding: Path) -> str:
    """The build of one variant. Outside the console pool ninja gives each compiler a process group of its own, which
    outlives ours."""
    flags = " ".join(_ninja_word(flag) for flag in (*recipe.flags, *(f"-I{folder}" for folder in recipe.include_dirs)))
    library = f"{recipe.name}.abi3.so"
    return "\n".join(
        [
            f"cxx = LC_ALL=C {_ninja_word(recipe.toolchain.compiler)}",
            f"flags = {flags}",
            "rule compile",
            "  command = $cxx $flags -c $in -o $out",
            "  pool = console",
            "rule link",  # first the unit alone, since all that it calls must exist; Python's functions do not yet
            "  command = $cxx -shared -pthread -Wl,-z,defs unit.o -o $out && "
            f"$cxx -shared -pthread -Wl,--defsym=PyInit_{recipe.name}=PyInit_variant $in -o $out",
            "  pool = console",
            "build unit.o: compile unit.cpp",
            f"build {library}: link unit.o {_ninja_path(binding)}",
            f"default {library}",
            "",
        ]
    )


def _binding_object(toolchain: Toolchain, abi: Path) -> Path:
    """The Python binding, compiled once a toolchain. Raises ToolchainError when the compiler cannot."""
    source = abi / "binding.cpp"
    identity = [toolchain.model_dump(mode="json"), source_digests([source], (abi,)), ABI_VERSION]
    folder = _cache() / "bindings" / digest_of(identity)[:16]
    for found in folder.glob("*.o"):  # named after its contents: a damaged one is made anew
        if hashlib.sha256(found.read_bytes()).hexdigest() == found.stem:
            return found
    with _private_directory(folder) as private:
        made = private / "binding.o"
        done = _run([toolchain.compiler, *toolchain.binding_flags, f"-I{abi}", "-c", str(source), "-o", str(made)])
        if done is None:
            raise ToolchainError(f"{toolchain.compiler} took longer than {BUILD_DEADLINE_S:.0f} s for {source}")
        if done.returncode:
            _require_space(done.stdout)
            why = " ".join(first_error(done.stdout).split())
            raise ToolchainError(f"{toolchain.compiler} cannot compile {source}: {why}")
        folder.mkdir(parents=True, exist_ok=True)
        final = folder / f"{hashlib.sha256(made.read_bytes()).hexdigest()}.o"
        made.replace(final)
    return final


def _run(command: list[str]) -> subprocess.CompletedProcess[str] | None:
    """Runs a command in a process group of its own, which is killed at the deadline; None then. Both outputs in one."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        process_group=0,
    )
    with process:
        try:
            output, _ = process.communicate(timeout=BUILD_DEADLINE_S)
        except subprocess.TimeoutExpired:
            return None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return subprocess.CompletedProcess(command, process.returncode, output)


def _run_ninja(private: Path) -> Fault | None:
    done = _run([sys.executable, "-m", "ninja", "-C", str(private), "-j", "1"])
    if done is None:
        return Fault(
            verdict=Verdict.BUILD_TIMEOUT,
            code="build.timeout",
            detail=f"the compiler took longer than {BUILD_DEADLINE_S:.0f} s and was killed",
        )
    if done.returncode == 0:
        return None
    _require_space(done.stdout)
    return Fault(verdict=Verdict.BUILD_FAILED, code="build.failed", detail=first_error(done.stdout))


def _require_space(output: str) -> None:
    """Raises OSError when a compiler's complaint is that the disk is full."""
    if "No space left on device" in output:
        raise OSError(errno.ENOSPC, "No space left on device")


def first_error(output: str) -> str:
    """Compiler output from the first error on, without ninja's epilogue, at most 1,000 characters."""
    lines = output.split("\nFAILED: ")[0].splitlines()
    starts = [i for i, line in enumerate(lines) if ERROR.search(line)]
    return "\n".join(lines[starts[0] :] if starts else lines[-10:])[:1000]


def _describe(recipe: Recipe, private: Path, seconds: float) -> Artifact:
    library = private / f"{recipe.name}.abi3.so"
    stack = [int(line.split("\t")[1]) for line in (private / "unit.su").read_text().splitlines()]
    return Artifact(
        variant=recipe.variant,
        dtype=recipe.dtype,
        head_dim=recipe.head_dim,
        causal=recipe.causal,
        digest=recipe.digest,
        name=recipe.name,
        path=str(library),
        library_sha256=hashlib.sha256(library.read_bytes()).hexdigest(),
        program_hash=program_hash(private / "unit.o"),
        macros=recipe.macros,
        compiler=recipe.toolchain.version,
        flags=recipe.flags,
        architecture=recipe.toolchain.architecture,
        resources={"text_bytes": text_bytes(private / "unit.o"), "stack_bytes": max(stack, default=0)},
        build_seconds=seconds,
    )
