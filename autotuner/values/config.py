"""Settings from the environment and the places where files live. No other module reads the environment."""

import contextlib
import importlib.util
import os
import shutil
import stat
import tempfile
from importlib import resources
from pathlib import Path

from autotuner.values.errors import InputError

STORE = "AUTOTUNER_STORE"
CACHE = "AUTOTUNER_CACHE"
TOKEN = "AUTOTUNER_TOKEN"
UNRECORDED = (
    *("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"),
    *("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "OBJC_INCLUDE_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX"),
    *("LD_RUN_PATH", "LDEMULATION", "CCC_OVERRIDE_OPTIONS", "GCC_COMPARE_DEBUG"),
    *("DEPENDENCIES_OUTPUT", "SUNPRO_DEPENDENCIES", "COLUMNS", "LANG", "LANGUAGE", "LC_ALL", "LC_MESSAGES"),
)
"""Flags and folders that compilers take from the environment, and a terminal's width and language, with which what they
say of themselves changes: a build is to depend on what its identity holds alone.
$LIBRARY_PATH is not among them. A build links nothing by name but what the compiler brings, and some installations'
compilers find that by it alone."""
TOOLKIT = ("bin", "lib", "lib64", "libexec", "include", "targets", "nvvm", "compute-sanitizer", "extras")
"""Of the folder that a compiler is installed in; the folder itself may be anybody's home."""
SHARED = (Path("/usr"), Path("/usr/local"))
"""Folders in which compilers are installed, and all else too."""
PATIENCE_MINUTES = 10.0
"""Minutes that a run waits for a calm machine, or for one that another run times, unless the user says otherwise."""


def store_url() -> str:
    """Path or SQLAlchemy URL of the study store: $AUTOTUNER_STORE, else studies.db in the working directory."""
    return os.environ.get(STORE, "studies.db")


def with_store(url: str) -> dict[str, str]:
    """The environment for a program that is to use that store. A command line would show its password to everybody."""
    return {**os.environ, STORE: url}


def columns() -> int | None:
    """How wide text is to be where there is no terminal: $COLUMNS; None where it is no number."""
    said = os.environ.get("COLUMNS", "")
    return int(said) if said.isdecimal() and 0 < int(said) < 10**5 else None


def token() -> str | None:
    """What a caller of the service must show to change anything: $AUTOTUNER_TOKEN; None: nobody can."""
    return os.environ.get(TOKEN) or None


def cache_dir() -> Path:
    """Where builds and references are kept: $AUTOTUNER_CACHE, else the user's cache directory. A user who has no home,
    as in a container whose user number is nobody's, gets a private folder among the temporary ones. Raises InputError
    where that one is another user's."""
    if os.environ.get(CACHE):
        return Path(os.environ[CACHE])
    if caches := os.environ.get("XDG_CACHE_HOME"):
        return Path(caches) / "autotuner"
    try:
        return Path.home() / ".cache" / "autotuner"
    except RuntimeError:
        return _private(Path(tempfile.gettempdir()) / f"autotuner-{os.getuid()}")


def _private(folder: Path) -> Path:
    """The folder, made if need be, that nobody else may use: what lies in it is loaded and run."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise InputError(f"{folder} is not this user's alone; set AUTOTUNER_CACHE to a folder that is")
    return folder


def cxx() -> str | None:
    """The C++ compiler for the CPU backend: $CXX, else g++ on the PATH; None when there is none."""
    return shutil.which(cxx_wanted())


def cxx_wanted() -> str:
    """The C++ compiler that is looked for."""
    return os.environ.get("CXX") or "g++"


def nvcc() -> str | None:
    """NVIDIA's compiler: in $CUDA_HOME (or $CUDA_PATH), on the PATH, or where pip puts it; None when there is none."""
    homes = [Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    folders = [*(str(each / "bin") for each in homes), None, *(str(each / "bin") for each in pip_toolkits())]
    return next((found for each in folders if (found := shutil.which("nvcc", path=each))), None)


def compute_sanitizer() -> str | None:
    """NVIDIA's sanitizer: in nvcc's toolkit, where pip puts it, or on the PATH; None when there is none."""
    compiler = nvcc()
    roots = [*([Path(compiler).resolve().parent.parent] if compiler else []), *pip_toolkits()]
    folders = [str(root / part) for root in roots for part in ("bin", "compute-sanitizer")]
    found = (shutil.which("compute-sanitizer", path=folder) for folder in (*folders, None))
    return next((tool for tool in found if tool), None)


def notify_socket() -> str | None:
    """Where systemd listens to the service that this process is; None where it is none."""
    return os.environ.get("NOTIFY_SOCKET") or None


def is_empty(variable: str) -> bool:
    """Whether a variable is set to nothing: in a process that must see no device, such as a builder, those are that say
    which devices it sees."""
    return os.environ.get(variable) == ""


def library_dirs() -> list[Path]:
    """The folders of $LD_LIBRARY_PATH, in which the system looks for libraries first."""
    return [Path(each) for each in os.environ.get("LD_LIBRARY_PATH", "").split(":") if each]


def with_programs_of(folder: Path) -> dict[str, str]:
    """The environment for a program that calls others of that folder."""
    return {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ.get('PATH', '')}"}


def for_compilers(folder: Path | None = None) -> dict[str, str]:
    """The environment for compilers, without what would change what they make and is recorded nowhere, such as today's
    date. With a folder their temporary files go there, what they say, which is read, is English, and a ccache, whose
    files lie elsewhere, only calls them."""
    kept = {name: value for name, value in os.environ.items() if name not in UNRECORDED} | {"SOURCE_DATE_EPOCH": "0"}
    return kept if folder is None else {**kept, "LC_ALL": "C", "CCACHE_DISABLE": "1", "TMPDIR": str(folder)}


def toolkits() -> list[Path]:
    """The compilers and tools that are here, with the folders of what they need, which are theirs alone."""
    tools = [Path(each) for each in (cxx(), nvcc(), compute_sanitizer()) if each is not None]
    homes = {tool.resolve().parent.parent for tool in tools} - {Path("/"), *SHARED}
    return [*tools, *(home / part for home in homes for part in TOOLKIT), *pip_toolkits()]


def pip_toolkits() -> list[Path]:
    """The folders into which pip installs the parts of a CUDA toolkit, the newest first."""
    spec = importlib.util.find_spec("nvidia")
    roots = spec.submodule_search_locations if spec and spec.submodule_search_locations else []
    return sorted((folder for root in roots for folder in Path(root).glob("cu[0-9]*")), reverse=True)


def _shipped(folder: str) -> Path:
    """A folder that lies beside the package in a checkout and inside it in a wheel."""
    packaged = Path(str(resources.files("autotuner"))) / "_shipped" / folder
    return packaged if packaged.is_dir() else Path(__file__).resolve().parent.parent.parent / folder


def kernels_dir() -> Path:
    """The kernel families that come with the package."""
    return _shipped("kernels")


def spaces_dir() -> Path:
    """The search spaces that come with the package."""
    return _shipped("search_spaces")
