"""NVIDIA's nvcc for the device code, with a C++ compiler for the host side."""

import functools
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Self

from pydantic import Field

from autotuner.devices.cpu.object_file import COMPILER, MEMORY, disassemble, misconduct, text_bytes
from autotuner.devices.cpu.toolchain import NOTHING_ELSE, CpuToolchain
from autotuner.devices.cuda import cubin, triton
from autotuner.devices.cuda.architecture import Architecture, architecture
from autotuner.forge.build_inputs import BuildInputs, abi_dir
from autotuner.forge.toolchain import HOST, IDENTITY, Toolchain, ask, cxx
from autotuner.values import config
from autotuner.values.errors import ToolchainError
from autotuner.values.verdict import Fault, Verdict

HOST_FLAGS = ("-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", *NOTHING_ELSE)
"""For the host side: it is compiled once, and runs on any CPU of its kind."""
DEVICE_FLAGS = ("-cubin", "-std=c++20", "-O3", "-Xptxas=-v", f"-Xcompiler={NOTHING_ELSE[1]}", NOTHING_ELSE[2])
COMPILES_TRITON = "triton_compile.py"
"""Of the ABI's folder: what compiles a kernel of Triton."""
TELLS = re.compile(r"\bSR_(CLOCK|GLOBALTIMER|PM)\w*|\bc\[0x0\]\[0x3[04]\]")
"""Registers of a GPU that tell the time, or how much was done; the constant is %gridid, which counts launches."""
HOST_LISTING = "host.s"
"""The host side's machine code as text, beside that of the device."""
ALLOWED = (
    r"-O[123]|-std=[\w+]+|-[DU][A-Za-z_]\w*(=\w*)?|--?(use_fast_math|restrict|extra-device-vectorization|extended-lambda|"
    r"expt-relaxed-constexpr|maxrregcount=\d+|(ftz|prec-div|prec-sqrt|fmad)=(true|false))|"
    r"-Xptxas=(-O[123]|-dlcm=\w+|--allow-expensive-optimizations=(true|false))"
)
SERIALISED = re.compile(r"\(C75\d\d\) Potential Performance Loss: (wgmma.*)")
"""What ptxas says when it waits after each product of a warpgroup: the variant is slow for a reason that is no merit
or fault of its parameters, and nothing to learn from."""
TOO_NEW = re.compile(r"unsupported (GNU|clang) version! [^!]*?(?:later|less) than (\d+)")
"""What nvcc says of a host compiler that it does not know."""


class CallsPython(CpuToolchain):
    """Of functions of Python on CUDA tensors: what calls them runs on the CPU."""

    torch_device = "cuda"


@functools.cache
def _calls_python() -> Toolchain:
    return CallsPython.discover()


class CudaToolchain(Toolchain):
    """nvcc for the device code, a C++ compiler for the host side, and the architecture to compile for."""

    unit = "unit.cu"
    trial = "#include <cuda_fp16.h>\n__global__ void tried(half *x) { x[threadIdx.x] = 0; }\n"
    needs_host = True
    objects = ("cubin.o", HOST, "cuda_host.o")
    sources: ClassVar[tuple[str, ...]] = ("cubin.S", "cuda_host.cpp")
    shared = ("cuda_host.cpp",)
    allowed = ALLOWED
    torch_device = "cuda"

    compiler: str = Field(description="the C++ compiler of the host side")
    version: str = Field(description="nvcc's and the host compiler's version")
    architecture: str = Field(description="sm_80, sm_89, sm_90, ...")
    nvcc: str
    headers: tuple[Path, ...] = Field(description="where cuda.h is, and cublasLt.h where there is one")
    binding_flags: tuple[str, ...] = HOST_FLAGS

    @classmethod
    def discover(cls, target: Architecture) -> Self:
        """Finds nvcc ($CUDA_HOME, then PATH, then the toolkit that pip installs) and the C++ compiler, and asks them.

        Raises ToolchainError with the remedy.
        """
        nvcc, compiler = _nvcc(), cxx()
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
            headers=_include_dirs(nvcc),
        )

    def of(self, language: str) -> Toolchain:
        if language == "triton":
            return TritonToolchain.beside(self)
        return _calls_python() if language == "python" else self

    @property
    def flags(self) -> tuple[str, ...]:
        return self._flags(f"-arch={self.architecture}")

    def flags_for(self, exact: str) -> tuple[str, ...] | None:
        """`exact` is an architecture with its own instructions, such as sm_90a."""
        if exact != f"{self.architecture}a":
            return None
        # The short form would compile for the plain architecture as well.
        return self._flags(f"-gencode=arch={exact.replace('sm', 'compute')},code={exact}")

    def _flags(self, target: str) -> tuple[str, ...]:
        return (*DEVICE_FLAGS, target, f"-ccbin={self.compiler}")

    @property
    def include_dirs(self) -> tuple[Path, ...]:
        return self.headers

    def identity(self, digest: str, report: Sequence[str], signature: str) -> list[str]:
        """Constants of the cubin, which the host side reads there. A kernel that reads them would not show, since the
        cubin has a reference to each anyway: so their names end with what no source can know, its own digest."""
        build_id, macros = (f"{name}_{digest[:16]}" for name in IDENTITY)
        return [
            f'extern "C" __device__ const char at_signature[] = {signature};',
            f'extern "C" {{ __device__ const char {build_id}[] = "{digest}", {macros}[] =',
            *report,
            '"";}',
        ]

    def compiled(self, words: Sequence[str]) -> list[str]:
        # A short TMPDIR of no odd characters: nvcc gives the names of its own files to a shell.
        return ["env", "TMPDIR=.", self.nvcc, *words, self.unit, "-o", "variant.cubin"]

    def refused(self, said: str) -> str:
        newest = TOO_NEW.search(said)
        if newest is None:
            return f"{self.nvcc} with {self.compiler}: {' '.join(said.split())[:300]}; mend or install another toolkit"
        host, last = f"{self.compiler} ({self.version.rpartition('; ')[2]})", int(newest[2]) - (newest[1] == "clang")
        remedy = f"set CXX to an older one, such as g++-{last}, or install a newer toolkit"
        return f"{self.nvcc} refuses the host compiler {host}: it knows {newest[1]} up to version {last}; {remedy}"

    def steps(self, inputs: BuildInputs, binding: Path) -> list[list[str]]:
        return [
            self.compiled(inputs.words),
            [self.compiler, "-c", str(abi_dir() / "cubin.S"), "-o", "cubin.o"],
            self.linked(inputs, binding, *self.objects, "-ldl"),
        ]

    def program_hash(self, folder: Path) -> str:
        carrier, *host = ((folder / each).read_bytes() for each in self.objects)
        return cubin.program_hash(carrier, b"".join(host))

    def misconduct(self, folder: Path, threads: bool, state: bool) -> str | None:
        if not state and (kept := cubin.state(folder / "variant.cubin")):
            return f"it keeps state on the device in {kept}: use the workspace, or __constant__ for what is none"
        if not state and (asked := TELLS.search(self.disassembly(folder / "variant.cubin") or "")):
            return f"its code on the device reads {asked[0]}: a variant computes from its inputs alone"
        calls = rf"{MEMORY}|{COMPILER}|at_cuda_\w+"
        return misconduct(folder / HOST, (folder / HOST_LISTING).read_text(), calls, state)

    def resources(self, folder: Path, printed: str) -> dict[str, int] | Fault:
        if (serialised := SERIALISED.search(printed)) is not None:
            return Fault(verdict=Verdict.BUILD_FAILED, code="build.failed", detail=f"ptxas: {serialised[1]}")
        code = folder / "variant.cubin"
        self.list_code(folder, cubin.disassemble(code, self.nvcc))
        (folder / HOST_LISTING).write_text(disassemble(folder / HOST) or "")
        used = {"text_bytes": text_bytes(code), **cubin.resources(printed, cubin.Geometry.read(code))}
        return architecture(self.architecture).refuse(used) or used


class TritonToolchain(CudaToolchain):
    """Triton for the device code, a C++ compiler for the host side, which is made for the variant."""

    unit = "unit.json"
    needs_host = False
    sources = ("cubin.S", "cuda_host.cpp", "triton_host.h", COMPILES_TRITON)
    triton: str

    @classmethod
    def beside(cls, toolchain: CudaToolchain) -> Self:
        """With the compilers of other variants. Raises ToolchainError without a Triton that is new enough."""
        found = triton.require()
        said = toolchain.model_dump()
        return cls(**{**said, "version": f"triton {found}; {toolchain.version}"}, triton=found)

    @property
    def flags(self) -> tuple[str, ...]:
        return ()

    def flags_for(self, exact: str) -> tuple[str, ...] | None:
        return None

    @property
    def reads(self) -> tuple[Path, ...]:
        return (Path(sys.prefix), Path(sys.base_prefix), *map(Path, triton.sites()))

    def steps(self, inputs: BuildInputs, binding: Path) -> list[list[str]]:
        sm = re.sub(r"\D", "", self.architecture)
        includes = [f"-I{folder}" for folder in (*inputs.include_dirs, *self.include_dirs)]
        return [
            [sys.executable, "-I", "-B", str(abi_dir() / COMPILES_TRITON), sm, str(inputs.source), *triton.sites()],
            [self.compiler, *HOST_FLAGS, *includes, "-c", "host.cpp", "-o", HOST],
            [self.compiler, "-c", str(abi_dir() / "cubin.S"), "-o", "cubin.o"],
            self.linked(inputs, binding, *self.objects, "-ldl"),
        ]


def _nvcc() -> str:
    nvcc = config.nvcc()
    if nvcc is None:
        raise ToolchainError(
            "no nvcc: not in $CUDA_HOME/bin, not on the PATH, and not installed by pip; "
            "install the CUDA toolkit, or its parts with: pip install 'kernel-autotuner[cuda]'"
        )
    return nvcc


def _include_dirs(nvcc: str) -> tuple[Path, ...]:
    """The folders of headers beside nvcc: its real place, and what it says of itself where it is a wrapper."""
    command, environment = [nvcc, "--dryrun", "-cubin", "x.cu"], config.for_compilers()  # says what it would do
    said = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    roots = [Path(nvcc).resolve().parent.parent, *map(Path, re.findall(r"^#\$ TOP=(.+)$", said.stderr, re.MULTILINE))]
    folders = [root.resolve() / "include" for root in (*roots, *config.pip_toolkits())]
    found = tuple(dict.fromkeys(folder for folder in folders if folder.is_dir()))
    if not any((folder / "cuda.h").is_file() for folder in found):
        raise ToolchainError(
            f"no cuda.h beside {nvcc}; install the whole toolkit, or: pip install 'kernel-autotuner[cuda]'"
        )
    return found


def require_driver(toolchain: CudaToolchain, driver: str | None) -> None:
    """Raises ToolchainError where the driver, by the CUDA version that it is for, is of an older generation than nvcc:
    it loads nothing that is compiled for a newer one. None: there is none here."""
    release = re.search(r"release (\d+)", toolchain.version)
    if driver is not None and release is not None and int(driver.partition(".")[0]) < int(release[1]):
        raise ToolchainError(
            f"the driver is for CUDA {driver}, and {toolchain.nvcc} is of CUDA {release[1]}, whose code it does not"
            f" load; update the driver, or set CUDA_HOME to a toolkit of CUDA {driver.partition('.')[0]}"
        )


def has_cublas() -> bool:
    """True when the headers of cuBLAS are installed with the toolkit."""
    nvcc = config.nvcc()
    return nvcc is not None and any((folder / "cublasLt.h").is_file() for folder in _include_dirs(nvcc))
