"""Compilers: the machine's C++ compiler, and NVIDIA's nvcc with one for the host side."""

from __future__ import annotations

import hashlib
import re
import subprocess
from pathlib import Path

from pydantic import Field

from autotuner.devices.cuda.architecture import Architecture
from autotuner.values import config
from autotuner.values.errors import ToolchainError
from autotuner.values.model import Model

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
HOST_FLAGS = ("-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden")
"""For the host side of a CUDA variant: it is compiled once, and runs on any CPU of its kind."""
DEVICE_FLAGS = ("-cubin", "-std=c++20", "-O3", "-Xptxas=-v")


class Toolchain(Model):
    """A C++ compiler and the machine it compiles for."""

    compiler: str
    version: str
    architecture: str = Field(description="what -march=native means here: CPU name and a digest of the target options")
    binding_flags: tuple[str, ...] = COMMON_FLAGS

    @classmethod
    def discover(cls) -> Toolchain:
        """Finds the C++ compiler and tries it. Raises ToolchainError with the remedy."""
        compiler = _cxx()
        version, *_ = ask(compiler, "--version").splitlines() or [""]
        target = ask(compiler, "-march=native", "-Q", "--help=target")
        march = re.search(r"-march=\s+(\S+)", target)
        if not version or march is None:
            raise ToolchainError(f"{compiler} does not say what -march=native means; is it a working g++?")
        digest = hashlib.sha256(target.encode()).hexdigest()[:12]
        return cls(compiler=compiler, version=version, architecture=f"{march[1]}-{digest}")


class CudaToolchain(Model):
    """nvcc for the device code, a C++ compiler for the host side, and the architecture to compile for."""

    compiler: str = Field(description="the C++ compiler of the host side")
    version: str = Field(description="nvcc's and the host compiler's version")
    architecture: str = Field(description="sm_80, sm_89, sm_90, ...")
    nvcc: str
    include_dirs: tuple[Path, ...] = Field(description="where cuda.h is, and cublasLt.h where there is one")
    binding_flags: tuple[str, ...] = HOST_FLAGS

    @classmethod
    def discover(cls, target: Architecture) -> CudaToolchain:
        """Finds nvcc ($CUDA_HOME, then PATH, then the toolkit that pip installs) and the C++ compiler, and asks them.

        Raises ToolchainError with the remedy.
        """
        nvcc, compiler = _nvcc(), _cxx()
        release = re.search(r"release [\d.]+, V[\d.]+", ask(nvcc, "--version"))
        known = ask(nvcc, "--list-gpu-code").split()
        if release is None:
            raise ToolchainError(f"{nvcc} does not say its version; is it a working nvcc?")
        if target.name not in known:
            raise ToolchainError(f"{nvcc} ({release[0]}) does not compile for {target.name}; install another toolkit")
        host, *_ = ask(compiler, "--version").splitlines() or [""]
        return cls(
            compiler=compiler,
            version=f"nvcc {release[0]}; {host}",
            architecture=target.name,
            nvcc=nvcc,
            include_dirs=_include_dirs(nvcc),
        )

    @property
    def device_flags(self) -> tuple[str, ...]:
        """The flags of every device compile."""
        return (*DEVICE_FLAGS, f"-arch={self.architecture}", f"-ccbin={self.compiler}")


AnyToolchain = Toolchain | CudaToolchain


def ask(compiler: str, *arguments: str) -> str:
    """The standard output of a compiler query. Raises ToolchainError when it fails."""
    try:
        done = subprocess.run([compiler, *arguments], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        name = "nvcc" if Path(compiler).name == "nvcc" else "g++"
        raise ToolchainError(f"{compiler} {' '.join(arguments)} failed: {error}; is it a working {name}?") from None
    return done.stdout


def _cxx() -> str:
    compiler = config.cxx()
    if compiler is None:
        raise ToolchainError(
            f"no C++ compiler: {config.cxx_wanted()} is not on the PATH; install one (apt-get install g++)"
        )
    return compiler


def _nvcc() -> str:
    nvcc = config.nvcc()
    if nvcc is None:
        raise ToolchainError(
            "no nvcc: not in $CUDA_HOME/bin, not on the PATH, and not installed by pip; "
            "install the CUDA toolkit, or its parts with: pip install 'autotuner[cuda]'"
        )
    return nvcc


def _include_dirs(nvcc: str) -> tuple[Path, ...]:
    """The folders of headers beside nvcc: its real place, and what it says of itself where it is a wrapper."""
    roots = [Path(nvcc).resolve().parent.parent]
    roots += [Path(top) for top in re.findall(r"^#\$ TOP=(.+)$", _dry_run(nvcc), re.MULTILINE)]
    folders = [root.resolve() / "include" for root in (*roots, *config.pip_toolkits())]
    found = tuple(dict.fromkeys(folder for folder in folders if folder.is_dir()))
    if not any((folder / "cuda.h").is_file() for folder in found):
        raise ToolchainError(f"no cuda.h beside {nvcc}; install the whole toolkit, or: pip install 'autotuner[cuda]'")
    return found


def has_cublas() -> bool:
    """True when the headers of cuBLAS are installed with the toolkit."""
    nvcc = config.nvcc()
    return nvcc is not None and any((folder / "cublasLt.h").is_file() for folder in _include_dirs(nvcc))


def _dry_run(nvcc: str) -> str:
    """What nvcc says it would do: on its standard error."""
    done = subprocess.run([nvcc, "--dryrun", "-cubin", "x.cu"], capture_output=True, text=True, timeout=60, check=False)
    return done.stderr
