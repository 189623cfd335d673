"""A module of an op as torch's compiler makes it, for one problem: made once and kept in the cache.

For a CPU what `torch.compile` generates is compiled ahead of time, to a library: a process that only runs it needs no
compiler and starts within milliseconds. For CUDA its cache is kept: the same ahead of time takes a C++ compiler minutes
there, and the loader of torch 2.11 crashed on what came out. A process reads a copy of that cache, some seconds long.
Where there is no compiler for the device, or it fails, this baseline takes no problem.
"""

import contextlib
import fcntl
import functools
import hashlib
import importlib.util
import os
import platform
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import torch
from elftools.elf.elffile import ELFFile
from torch import Tensor

from autotuner.ops import ahead, op_of
from autotuner.ops.tensors import Tensors, moved
from autotuner.values import config
from autotuner.values.problem import Problem
from autotuner.values.versions import processor

LIBRARY = "module.so"
FLAGS_AT, READ_AND_WRITE = 4, 6
"""Where a segment of a 64-bit ELF file has its flags, and what they are of memory without code."""
FORMAT = "6"
PROCESSOR = (
    *("model name", "cpu family", "model", "stepping", "flags"),
    *("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "Features"),
)
"""What sets processors apart, by its names for x86 and for Arm in /proc/cpuinfo."""

Run = Callable[[list[Tensor]], list[Tensor]]


def forward(problem: Problem) -> Callable[..., Tensors]:
    """What the compiler makes of the op's `module` for a problem; calling it raises RuntimeError where it fails."""

    def compiled(*inputs: Tensor) -> Tensors:
        return tuple(_library(problem, inputs[0].device.type)([*inputs]))

    return compiled


def is_made(problem: Problem, device: str) -> bool:
    """Whether nothing has to be compiled any more: it is in the cache, or cannot be made here."""
    try:
        return _place(problem, device, _required_compiler(device)).exists()
    except RuntimeError:
        return True


@functools.cache
def _library(problem: Problem, device: str) -> Run:
    """Makes what the compiler makes unless it is in the cache, and loads it. Raises RuntimeError."""
    return _load(problem, _made(problem, device), device)


def _load(problem: Problem, made: Path, device: str) -> Run:
    if device == "cuda":
        return _from_cache(problem, made, device)
    return cast(Run, cast(Any, torch._C)._aoti.AOTIModelContainerRunnerCpu(str(made / LIBRARY), 1).run)


def _from_cache(problem: Problem, made: Path, device: str) -> Run:
    """Compiled in this process, out of a copy of the cache that is there: the compiler writes into it as well."""
    with tempfile.TemporaryDirectory(prefix="compiled-", ignore_cleanup_errors=True) as folder:
        shutil.copytree(made, folder, dirs_exist_ok=True)
        run = _just_in_time(problem, Path(folder), device)
        try:
            run([*_inputs(problem, device)])
        except Exception as error:  # of a compiler's own kinds
            raise RuntimeError(f"torch's compiler failed: {error}") from None
    return run


def _inputs(problem: Problem, device: str) -> Tensors:
    op = op_of(problem)
    return moved(op.tensors().inputs(problem, op.ordinary, 1), device)


def _just_in_time(problem: Problem, folder: Path, device: str) -> Run:
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder)
    os.environ["TRITON_CACHE_DIR"] = str(folder / "triton")  # else in the user's home, where a cage lets nobody write
    from autotuner.ops import compiler  # noqa: F401

    forward = torch.compile(_module(problem, device), fullgraph=True, dynamic=False)

    def run(inputs: list[Tensor]) -> list[Tensor]:
        with torch.no_grad():
            return [forward(*inputs)]

    return run


def _made(problem: Problem, device: str) -> Path:
    """The folder of what was made. A library in it serves any number of threads."""
    made = _place(problem, device, _required_compiler(device))
    if not made.exists():
        if time.monotonic() > ahead.latest:
            raise RuntimeError(ahead.LATE)
        try:
            made.parent.mkdir(parents=True, exist_ok=True)
            with _alone(made.parent):
                if not made.exists():
                    _make(problem, device, made)
        except OSError as error:  # in a cage nothing can be made
            raise RuntimeError(f"no compiled baseline can be made here: {error}") from None
    return made


def _place(problem: Problem, device: str, compiler: str) -> Path:
    """The folder in the cache for what is made of a problem here."""
    kind = torch.cuda.get_device_name() if device == "cuda" else _machine(compiler)
    maker = hashlib.sha256(f"{FORMAT} {torch.__version__} {device} {kind}".encode()).hexdigest()[:16]
    return config.cache_dir().absolute() / "compiled" / f"{ahead.name(problem)}-{maker}"


def _machine(compiler: str) -> str:
    """This host, its processor's model and instructions, for which a library is made, and its compiler: by its file,
    since in a cage it cannot be asked."""
    program = Path(compiler).resolve()
    found, fields = program.stat(), processor()
    told = [platform.node(), *(fields.get(name) for name in PROCESSOR)]
    return repr([*told, str(program), found.st_size, found.st_mtime_ns])


def _required_compiler(device: str) -> str:
    compiler = config.cxx() or shutil.which("g++")
    if compiler is None:
        raise RuntimeError("torch's compiler needs a C++ compiler")
    if device == "cuda" and importlib.util.find_spec("triton") is None:
        raise RuntimeError("torch's compiler needs triton for CUDA")
    return compiler


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Whoever makes something else in the folder is waited for; who dies holds nobody up."""
    held = os.open(folder, os.O_RDONLY)
    try:
        while True:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            if time.monotonic() > ahead.latest:
                raise RuntimeError(ahead.LATE)
            time.sleep(0.05)
        yield
    finally:
        os.close(held)


def _make(problem: Problem, device: str, made: Path) -> None:
    """In a process of its own, which may import what it likes; the folder appears by one rename."""
    with tempfile.TemporaryDirectory(dir=made.parent, ignore_cleanup_errors=True) as work:
        private = Path(work) / "made"
        private.mkdir()
        environment, nothing = {**os.environ, "TMPDIR": work}, subprocess.DEVNULL

        def run(what: str, where: Path) -> None:
            command = [sys.executable, "-m", "autotuner.ops.compiled", what, problem.model_dump_json(), device]
            said = Path(work) / "said"
            with (
                said.open("w") as into,
                subprocess.Popen(
                    [*command, str(where)], env=environment, stdin=nothing, stdout=nothing, stderr=into, process_group=0
                ) as process,
            ):
                try:
                    code = process.wait(min(ahead.DEADLINE_S, ahead.latest - time.monotonic()))
                finally:  # with the compilers that it has started
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
            if code:
                why = said.read_text(errors="replace").strip().rpartition("\n")[2]
                raise RuntimeError(f"torch's compiler failed: to {what} it ended with {code}: {why}")

        try:
            run("make", private)
            moved = private.rename(private.with_name("moved"))
            if device != "cuda":  # there it is compiled out of the cache in each process, and judged before it counts
                run("try", moved)  # what crashes does so there, and what needs a file beside it does not find it
            moved.rename(made)
        except subprocess.TimeoutExpired:
            raise RuntimeError(ahead.LATE) from None
        except OSError as error:
            if not made.exists():
                raise RuntimeError(f"torch's compiler failed: {error}") from None


def _module(problem: Problem, device: str) -> torch.nn.Module:
    return cast(torch.nn.Module, cast(Any, op_of(problem).tensors()).module(problem, device))


def _ahead_of_time(problem: Problem, folder: Path, inputs: Tensors) -> None:
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder.with_name("inductor"))
    from torch._inductor import aot_compile
    from torch._inductor.cpu_vec_isa import VecISA

    VecISA._avx_py_load = ""  # else torch 2.11 imports itself in a process for each, minutes where much runs
    options = {
        "aot_inductor.output_path": str(folder / LIBRARY),
        "cpp_cache_precompile_headers": False,  # it takes as long as what they are for, which is compiled once
        "aot_inductor.precompile_headers": False,
        "cpp.vec_isa_ok": True,  # by the processor's flags: else each is compiled and loaded
        "cpp.dynamic_threads": True,
    }
    aot_compile(torch.export.export(_module(problem, "cpu"), inputs).module(), inputs, options=options)
    _keep_code_off_the_stack(folder / LIBRARY)


def _keep_code_off_the_stack(library: Path) -> None:
    """A part that torch has an assembler make does not say that it needs no code on the stack, so that the whole
    library asks for it, which a cage refuses."""
    with library.open("r+b") as file:
        elf = ELFFile(file)
        kinds = [segment["p_type"] for segment in elf.iter_segments()]
        if "PT_GNU_STACK" in kinds:
            file.seek(elf["e_phoff"] + kinds.index("PT_GNU_STACK") * elf["e_phentsize"] + FLAGS_AT)
            file.write(struct.pack("=I", READ_AND_WRITE))


def main(what: str, document: str, device: str, name: str = "") -> None:
    """Makes what is kept of a problem in a folder, or tries what is there; or does both for a run of so many seconds,
    and puts it in the cache."""
    problem, folder = Problem.model_validate_json(document), Path(name)
    if what == "keep":
        with ahead.limited(device, float(name) if name else None), contextlib.suppress(RuntimeError):
            _made(problem, device)  # whoever asks for it is told
        return
    inputs = _inputs(problem, device)
    if what == "try":
        found = _load(problem, folder, device)([*inputs])[0]
        expected = op_of(problem).tensors().BASELINES[op_of(problem).tensors().BETWEEN[device]].answer(problem, inputs)
        torch.testing.assert_close(found, expected[0], rtol=0.02, atol=0.02)
    elif device == "cuda":
        _just_in_time(problem, folder, device)([*inputs])
    else:
        _ahead_of_time(problem, folder, inputs)


if __name__ == "__main__":
    main(*sys.argv[1:])
