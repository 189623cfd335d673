"""What compilers read of the system: headers, folders that hold nothing but parts of compilers, and programs by name
with the libraries that they load. Other files beside these are in no digest, so no source may take them in."""

import contextlib
import functools
import re
import shutil
import subprocess
from pathlib import Path

from autotuner.values import config
from autotuner.values.variant import digest_of

FOLDERS = ("include", "lib*/gcc*", "libexec/gcc*", "lib*/llvm*", "lib*/clang*", "lib*/ccache", "*-linux-*", "cuda*")
"""Of config.SHARED."""
OTHERS = (
    *("/usr/lib/nvidia-cuda-toolkit", "/nix/store", "/etc/alternatives", "/etc/ld.so.cache"),
    *("/proc/cpuinfo", "/proc/meminfo", "/sys/devices/system/cpu"),
)
PROGRAMS = ("g++", "c++", "clang++", "ccache", "sccache", "as", "sh", "bash", "sed", "grep", "mkdir")
"""That compile or assemble, or that wrappers, which are scripts, call."""
ALIKE = (
    *("gcc", "cc", "cpp", "clang", "env", "dirname", "basename", "readlink", "realpath", "rm", "mktemp", "uname"),
    *("cat", "expr", "test", "cut", "head", "tail", "tr", "wc", "seq", "sleep", "date", "touch", "ls", "cp", "which"),
)
"""More of them, that load what these load."""
LOADED = re.compile(r"(/\S+) \(0x")
"""In what ldd says of a program."""
RUNTIME = ("libc", "libm", "libdl", "libpthread", "librt", "libstdc++", "libgcc_s")
"""What a toolkit's own programs load."""
SYSTEM = ("bin", "sbin", "lib", "lib32", "lib64", "libexec")


def everything() -> list[Path]:
    """What a linker reads, and so does a compiler that does with no less."""
    return [*(root / each for root in (Path("/"), *config.SHARED) for each in SYSTEM), *_folders()]


def needed() -> list[Path]:
    """What a compiler reads beside its toolkit."""
    return everything() if needs_more().exists() else [*_folders(), *_programs(config.cxx())]


def needs_more() -> Path:
    """A file: it is in the cache where the compilers that are here fail with what is needed."""
    return config.cache_dir() / "objects" / f"needs-more-{digest_of([config.cxx(), config.nvcc()])[:16]}"


def _folders() -> list[Path]:
    parts = [path for root in config.SHARED for each in FOLDERS for path in root.glob(each)]
    return [*parts, *map(Path, OTHERS)]


@functools.cache
def _programs(compiler: str | None) -> tuple[Path, ...]:
    asked = {path for each in (*PROGRAMS, compiler or "") if (path := shutil.which(each)) is not None}
    asked |= {str(path) for root in config.SHARED for path in root.glob("lib*/gcc/*/*/cc1plus")}
    said = ""
    with contextlib.suppress(OSError, subprocess.SubprocessError):  # with a status: a script loads nothing
        said = subprocess.run(["ldd", *asked], capture_output=True, text=True, timeout=20, check=False).stdout
    loaded = {Path(each) for each in LOADED.findall(said)}
    folders = {each.parent for each in loaded}
    runtime = {path for folder in folders for each in RUNTIME for path in folder.glob(f"{each}.so.*")}
    alike = {Path(path) for each in ALIKE if (path := shutil.which(each)) is not None}
    return (*map(Path, asked), *loaded, *runtime, *alike)
