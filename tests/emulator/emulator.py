"""Runs a CUDA variant on the CPU: its logic without a GPU (README.md beside this file)."""

import argparse
import contextlib
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

from autotuner.forge.build_inputs import files_of
from autotuner.forge.unit import compiled_lines, macro_lines
from autotuner.gate.cases import Case
from autotuner.gate.tolerance import compute_truth, judge
from autotuner.ops import OPS
from autotuner.ops.sdpa import OP
from autotuner.ops.sdpa.masks import given as given_inputs
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.ops.sdpa_fp8 import SdpaFp8Problem
from autotuner.ops.tensors import DTYPES, Tensors, far_apart, gaps_of, lying_in, same_bits, span
from autotuner.values import config
from autotuner.values.gate_report import CaseErrors
from autotuner.values.problem import Problem

HERE = Path(__file__).parent
KERNELS = config.kernels_dir()
RUNTIME = ("scheduler.cpp", "tensor_cores.cpp", "warpgroups.cpp", "copies.cpp", "memory.cpp")
DRIVERS = {"wgmma.cu": "wgmma_driver.cpp"}
"""The program around a kernel whose argument is not sdpa_args, by the source's name."""
FIRST = "emulated_ptx.h"
"""The header that every unit begins with."""
SHARED_LIMIT = 232448
POISON = 0xFF
"""The byte of which an output is full before a launch (memory.cpp)."""
BAND = 1024
"""Bytes past the largest dynamic shared memory: an overrun by less is seen even there."""

RUN_SECONDS = 120.0
DYNAMIC = re.compile(r"extern\s+__shared__\s+([^;\[\]]*?)(\w+)\s*\[\s*\]\s*;")
FLAGS = (
    "-std=c++20",
    "-DAT_EMULATED",
    "-march=native",
    "-ffp-contract=off",
    "-fno-strict-aliasing",
    "-fwrapv",
    "-U_FORTIFY_SOURCE",
    "-pthread",
    "-w",
)
UNIT_FLAGS = ("-O1", "-fsanitize=alignment,bounds,shift", "-fno-sanitize-recover=all")
RUNTIME_FLAGS = ("-O2",)


class EmulationError(Exception):
    """The variant does not compile, or broke a rule when it ran; the text says which."""


def cuda_include() -> Path | None:
    """The folder of the CUDA toolkit's headers, which the emulator needs for the 16-bit types; None: not installed."""
    roots = [os.environ.get("CUDA_HOME"), "/usr/local/cuda"]
    folders = [Path(root) / "include" for root in roots if root]
    return next((folder for folder in folders if (folder / "cuda_bf16.h").is_file()), None)


def emulate(
    source: Path,
    parameters: Mapping[str, int | str],
    problem: SdpaProblem,
    inputs: Tensors,
    seed: int,
    far: tuple[int, int] | None = None,
) -> Tensors:
    """The outputs of one launch. The seed chooses the schedule, when copies land and where tensors lie. `far`: which of
    Q, K, V and O is far apart for the kernel, along which dimension.

    Raises EmulationError.
    """
    driver = DRIVERS.get(source.name, "sdpa_driver.cpp")
    program = build(source, parameters, problem, driver)
    (o, *lse), given = OP.tensors().outputs(problem, inputs), b"".join(map(_raw, inputs))
    dims = (problem.batch, problem.heads, problem.seq_q, problem.seq_k, problem.heads_kv)
    places = (number for tensor in (*inputs[:3], o) for number in (span(tensor), *tensor.stride()[:3]))
    of = given_inputs(problem, inputs)
    small = [0 if each is None else len(_raw(each)) for each in (of.lengths, of.sinks, of.bias, *lse)]
    small += [0] * (not lse)
    bias = of.bias if of.bias is not None and of.bias.dim() == 4 else torch.zeros(1, 1, 1, 1)
    small += [stride if size > 1 else 0 for stride, size in zip(bias.stride()[:3], bias.shape, strict=False)]
    like = None if far is None else far_apart((*inputs[:3], o)[far[0]], far[1])
    moved = () if far is None or like is None else (far[0], span(like), *like.stride()[:3])
    window = (problem.window_left, problem.window_right, problem.softcap)
    found = _run(program, given, seed, *dims, problem.scale, *places, *small, *window, *moved)
    return _outputs(found, o, lse)


def _outputs(found: bytearray, o: Tensor, lse: Sequence[Tensor]) -> Tensors:
    """What a program has written: O, which lies as this one does, and behind it dense ones. Raises EmulationError."""
    whole = torch.frombuffer(found, dtype=o.dtype, count=span(o))
    gaps = gaps_of(o)
    if gaps is not None and not bool((whole[gaps].view(torch.uint8) == POISON).all()):
        raise EmulationError("what lies between the rows of O was written")
    more = tuple(torch.frombuffer(found, dtype=each.dtype, offset=2 * span(o)).view(each.shape) for each in lse)
    return (lying_in(whole, o), *more)


def emulate_fp8(
    source: Path, parameters: Mapping[str, int | str], problem: SdpaFp8Problem, inputs: Tensors, seed: int
) -> Tensors:
    """The outputs of one launch of a variant of sdpa_fp8, as `emulate` runs one of sdpa. Raises EmulationError."""
    program = build(source, parameters, problem, f"sdpa_fp8{'_decode' * problem.fp8_cache}_driver.cpp")
    o, *lse = OPS["sdpa_fp8"].tensors().outputs(problem, inputs)
    dims = (problem.batch, problem.heads, problem.seq_q, problem.seq_k, problem.heads_kv)
    places = (number for tensor in (*inputs[:3], o) for number in (span(tensor), *tensor.stride()[:3]))
    small = (inputs[6].numel() * 4 if problem.key_lengths else 0, sum(map(len, map(_raw, lse))))
    found = _run(program, b"".join(map(_raw, inputs)), seed, *dims, problem.scale, *places, *small)
    return _outputs(found, o, lse)


def emulate_rows(
    source: Path, parameters: Mapping[str, int | str], problem: Problem, x: Tensor, w: Tensor, seed: int
) -> Tensor:
    """Y of one launch of a variant whose op has a driver with two inputs, as `emulate` runs one of sdpa. Raises
    EmulationError."""
    program = build(source, parameters, problem, f"{problem.op}_driver.cpp")
    output = _run(program, _raw(x) + _raw(w), seed, *problem.shape, x.element_size(), *problem.scalars)
    return torch.frombuffer(output, dtype=x.dtype).view(x.shape)


def emulate_softmax(
    source: Path,
    parameters: Mapping[str, int | str],
    problem: SdpaProblem,
    scores: Tensor,
    rows_of_chunk: tuple[int, int, int],
    seed: int,
) -> Tensor:
    """The probabilities that the softmax kernel of IMPL = cublas makes of scaled scores, (rows, pitch).

    `rows_of_chunk` is (chunk_rows, first_row, keys) of its arguments. Raises EmulationError.
    """
    program = build(source, parameters, problem, "softmax_driver.cpp")
    output = _run(program, _raw(scores), seed, scores.shape[0], *rows_of_chunk, scores.shape[1])
    return torch.frombuffer(output, dtype=DTYPES[problem.dtype]).view(scores.shape)


def _raw(tensor: Tensor) -> bytes:
    """All that lies between its first and its last element, and as much as makes whole pieces of 16 bytes of more than
    a list: the end decides where it lies."""
    whole = tensor.as_strided((span(tensor),), (1,))
    found = bytes(whole.view(torch.uint8).numpy().tobytes())
    return found + bytes(-len(found) % 16 if tensor.dim() == 4 else 0)


def _run(program: Path, given: bytes, seed: int, *arguments: float) -> bytearray:
    """What a program makes of its input."""
    with tempfile.TemporaryDirectory() as folder:
        source, result = Path(folder) / "in", Path(folder) / "out"
        source.write_bytes(given)
        command = [str(x) for x in (program, source, result, seed, *arguments)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            raise EmulationError(f"still running after {RUN_SECONDS:.0f} s") from None
        if done.returncode != 0:
            raise EmulationError(done.stderr.strip() or f"ended with status {done.returncode}")
        return bytearray(result.read_bytes())


def build(source: Path, parameters: Mapping[str, int | str], problem: Problem, driver: str) -> Path:
    """The program that runs the variant, compiled unless it is in the cache."""
    source = source.resolve()
    of_op = KERNELS / problem.op
    folders = (HERE / "include", HERE, KERNELS / "abi", of_op / "abi", source.parent, of_op)
    files = list(_read_with_headers(source, folders))
    unit = unit_text(source, parameters, problem, files)
    runtime = [_object(HERE / name, "", RUNTIME_FLAGS, folders) for name in (*RUNTIME, driver)]
    program = _object(source, unit, UNIT_FLAGS, folders).with_suffix("")
    linked = program.with_name(f"{program.name}-{_digest(*(x.name for x in runtime))}")
    if not linked.exists():
        with _private(linked) as private:
            objects = [str(x) for x in (program.with_suffix(".o"), *runtime)]
            _compile(["-pthread", "-fsanitize=undefined", *objects, "-o", str(private)])
    return linked


def unit_text(source: Path, parameters: Mapping[str, int | str], problem: Problem, files: list[str]) -> str:
    """The translation unit: macros, the variant's source, and the dynamic shared memory that it declares."""
    lines = [f'#include "{FIRST}"', *macro_lines(parameters), *compiled_lines(problem.compiled)]
    if parameters.get("FIXED") == 1:
        lines += [f"#define {name} {value}" for name, value in problem.lengths.items()]
    lines.append(f'#include "{source}"')
    names = {}
    for text in files:
        names.update({found[2]: found[1] for found in DYNAMIC.finditer(text)})
    if len(names) > 1:
        raise EmulationError(f"dynamic shared memory has several names: {', '.join(names)}")
    base, capacity = "nullptr", "0"
    for name, kind in names.items():
        element = re.sub(r"__align__\(\d+\)|alignas\(\d+\)", "", kind)
        lines.append(f"thread_local {kind} {name}[{SHARED_LIMIT + BAND} / sizeof({element})];")
        base, capacity = f"(unsigned char *){name}", f"sizeof {name}"
    lines.append(f"unsigned char *emulator::dynamic_base() {{ return {base}; }}")
    lines.append(f"extern const size_t emulator::dynamic_capacity = {capacity};")
    return "\n".join([*lines, ""])


def _read_with_headers(source: Path, folders: tuple[Path, ...]) -> Iterator[str]:
    """The text of a source and of every header of ours that it includes."""
    for text in files_of([source], folders).values():
        yield text.decode()


def _object(source: Path, unit: str, flags: tuple[str, ...], folders: tuple[Path, ...]) -> Path:
    """The object file of a source, or of a unit that includes it; named after all that it is made from."""
    emulated = [text for header in (FIRST, "emulator.h") for text in _read_with_headers(HERE / header, folders)]
    content = _digest(unit, *_read_with_headers(source, folders), *emulated, *flags, *FLAGS, str(cuda_include()))
    made = _cache() / f"{source.stem}-{content}.o"
    if not made.exists():
        with _private(made) as private:
            text = private.with_name("unit.cpp")
            text.write_text(unit or f'#include "{source}"\n')
            first = (_prepared(flags, folders),) if unit else ()
            _compile([*FLAGS, *flags, *_includes(*first, *folders), "-c", str(text), "-o", str(private)])
    return made


def _includes(*folders: Path) -> list[str]:
    return [f"-I{folder}" for folder in (*folders, cuda_include() or HERE)]


def _prepared(flags: tuple[str, ...], folders: tuple[Path, ...]) -> Path:
    """A folder with the header that every unit begins with, which the compiler has read already: that is two thirds of
    what it has to do for a unit. A compiler that cannot use what it finds there reads the header itself."""
    header = HERE / FIRST
    content = _digest(*_read_with_headers(header, folders), *flags, *FLAGS, str(header), str(cuda_include()))
    made = _cache() / f"header-{content}"
    if not made.exists():
        with tempfile.TemporaryDirectory(dir=made.parent) as folder:
            private = Path(folder) / made.name
            private.mkdir()
            (private / FIRST).write_text(f'#include "{header}"\n')
            read, kept = str(private / FIRST), str(private / f"{FIRST}.gch")
            _compile([*FLAGS, *flags, *_includes(*folders), "-x", "c++-header", read, "-o", kept])
            with contextlib.suppress(OSError):  # another process was faster
                private.rename(made)
    return made


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:20]


def _cache() -> Path:
    """Where compiled programs are kept."""
    folder = config.cache_dir().absolute() / "emulator"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextlib.contextmanager
def _private(final: Path) -> Iterator[Path]:
    """A file in a folder of its own, moved to `final` when all went well."""
    with tempfile.TemporaryDirectory(dir=final.parent) as folder:
        private = Path(folder) / final.name
        yield private
        private.rename(final)


def _compile(arguments: list[str]) -> None:
    done = subprocess.run([config.cxx() or "g++", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise EmulationError(f"does not compile:\n{done.stderr[:4000]}")


# The command line ---------------------------------------------------------------------------------------------------


def judged(source: Path, parameters: Mapping[str, int | str], case: Case, seeds: int) -> CaseErrors:
    """The errors of a variant on a case, those of its worst output; raises EmulationError when two schedules give
    different bits."""
    inputs = (truth := compute_truth(case, 1)).inputs
    problem = cast(SdpaProblem, case.problem)
    first = emulate(source, parameters, problem, inputs, 0)
    for seed in range(1, seeds):
        for one, other in zip(first, emulate(source, parameters, problem, inputs, seed), strict=True):
            if not same_bits(one, other):
                unlike = one != other
                rows = (unlike.any(-1) if one.dim() == 4 else unlike).nonzero().tolist()
                found = f"{len(rows)} rows, first (batch, head, row) {rows[0] if rows else 'none'}"
                raise EmulationError(f"seeds 0 and {seed} differ in {found}")
    errors = [judge(output, right) for output, right in zip(first, truth.outputs, strict=True)]
    return max(errors, key=lambda each: each.worst_ratio)


def in_words(errors: CaseErrors) -> str:
    """Errors in units of the gate's tolerances: above 1 is a failure."""
    ratios = [
        f"{name} {error / tolerance:.3f}"
        for name, error, tolerance in (
            ("T1 largest", errors.max_abs, errors.max_abs_tol),
            ("T2 row", errors.row_rel, errors.row_rel_tol),
            ("T3 slice", errors.slice_rel, errors.slice_rel_tol),
        )
    ]
    text = ", ".join(ratios)
    if errors.failed_rule is None:
        return f"pass: {text} of the tolerance"
    return (
        f"FAIL {errors.failed_rule}: {text} of the tolerance; {errors.nonfinite} not finite; worst at "
        f"{errors.worst_index}: {errors.worst_value:.6g} instead of {errors.worst_reference:.6g}; "
        f"{errors.bad_rows:.1%} bad rows, first {errors.first_bad_row}"
    )


def _parameter(text: str) -> tuple[str, int | str]:
    name, _, value = text.partition("=")
    return name, int(value) if re.fullmatch(r"-?\d+", value) else value


def main() -> int:
    """Judges one variant on one problem; 0 when it passes."""
    parser = argparse.ArgumentParser(prog="python -m tests.emulator.emulator", description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("parameters", nargs="*", type=_parameter, metavar="NAME=VALUE")
    parser.add_argument("--problem", default="(1,2,70x91,64) float16", help=SdpaProblem.FORM)
    parser.add_argument("--distribution", default="randn")
    parser.add_argument("--seeds", type=int, default=3, help="schedules to compare")
    given = parser.parse_intermixed_args()
    problem = SdpaProblem.parse(given.problem)
    case = Case.model_validate({"name": str(problem), "problem": problem, "distribution": given.distribution})
    started = time.monotonic()
    try:
        errors = judged(given.source, dict(given.parameters), case, given.seeds)
    except EmulationError as error:
        sys.stdout.write(f"FAIL {error}\n")
        return 1
    sys.stdout.write(f"{in_words(errors)}  ({time.monotonic() - started:.1f} s)\n")
    return int(errors.failed_rule is not None)


if __name__ == "__main__":
    sys.exit(main())
