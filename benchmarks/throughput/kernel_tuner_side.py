"""Kernel Tuner on kernels/sdpa/scalar.cu: the wrapper, the options and the run, for `throughput.py kernel-tuner`.

Kernel Tuner passes arguments one by one, and its cupy backend does not raise a kernel's limit of dynamic shared memory.
So the kernel, unchanged, is called by one that takes plain arguments, and configurations keep below that limit.
"""

from __future__ import annotations

import math
import os
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np

from autotuner.devices.cuda.cubin import Geometry
from autotuner.devices.cuda.toolchain import CudaToolchain
from autotuner.devices.environment import usable_cpus
from autotuner.forge.build_inputs import abi_dir
from autotuner.forge.compiling import run
from autotuner.forge.family import Family
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.spaces.space import Space
from autotuner.values.variant import Value

Point = dict[str, Value]

SHARED_LIMIT = 48 << 10
"""Bytes of dynamic shared memory that a kernel may have without asking."""

ATOL = 2e-3
"""Kernel Tuner's one comparison: numpy.allclose with this and its own rtol of 1e-5, in float16."""

TYPES = """
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
typedef unsigned long long uintptr_t;
#define INFINITY __int_as_float(0x7f800000)
"""
"""What the kernel's headers expect of the host's, which NVRTC lacks: stdint.h, and INFINITY of math.h."""

SOURCE = """
#if REDUCE_IS_SHARED
#define REDUCE_SHARED 1
#else
#define REDUCE_WARP 1
#endif
#define DTYPE AT_FLOAT16
#include "sdpa_cuda.h"
#include "cuda_element.h"
#undef __global__
#undef __launch_bounds__
#undef __grid_constant__
#define __global__ __device__ __forceinline__
#define __launch_bounds__(...)
#define __grid_constant__
#include "scalar.cu"
#undef __global__
#define __global__ __attribute__((global))

extern "C" __global__ void __attribute__((launch_bounds(32 * NUM_WARPS, 1)))
sdpa_scalar(const half *q, const half *k, const half *v, half *o, int batch, int heads, int seq_q, int seq_k,
            float scale) {
  sdpa_args args = {};
  args.q = q, args.k = k, args.v = v, args.o = o;
  args.batch = batch, args.heads = heads, args.seq_q = seq_q, args.seq_k = seq_k;
  args.scale = scale, args.scale_log2 = scale * 1.4426950408889634f;
  variant_kernel(args);
}
"""
KERNEL = "sdpa_scalar"
MACROS = ("BLOCK_M", "BLOCK_N", "VEC_WIDTH", "STAGES", "PAD", "SYNC_POLICY")
"""Parameters of the space that are macros as they are. NUM_WARPS is THREADS / 32; REDUCE is a word."""


def shared_bytes(point: Point, head_dim: int) -> int:
    """Dynamic shared memory of a configuration, as scalar.cu computes it."""
    block_m, block_n = int(point["BLOCK_M"]), int(point["BLOCK_N"])
    rows = block_m // int(point["NUM_WARPS"])
    lanes = 32 // rows if rows < 8 else 4
    while lanes < 32 and lanes < block_n and 4 * lanes * lanes * rows <= 32 * block_n:
        lanes *= 2
    pitch = head_dim + int(point["PAD"])
    halves = block_m * pitch + 2 * int(point["STAGES"]) * block_n * pitch
    floats = block_m * (block_n + lanes) + (block_m * lanes if point["REDUCE"] == "shared" else 0)
    return 2 * halves + 4 * floats


def configurations(space: Space, count: int, seed: int) -> list[Point]:
    """`count` valid points of the scalar implementation that need no more shared memory than Kernel Tuner gives."""
    head_dim = cast(SdpaProblem, space.file.problems[0]).head_dim
    column = space.rows[:, space.parameters.index("IMPL")]
    scalar = np.flatnonzero(column == space.values["IMPL"].index("scalar"))
    points = [space.point(int(index)) for index in scalar]
    fitting = [point for point in points if shared_bytes(point, head_dim) <= SHARED_LIMIT]
    return random.Random(seed).sample(fitting, min(count, len(fitting)))


def key(params: Point) -> tuple[Value, ...]:
    """What tells configurations apart; takes our points and Kernel Tuner's parameters alike."""
    threads = params["THREADS"] if "THREADS" in params else 32 * int(params["NUM_WARPS"])
    return (threads, params["REDUCE"], *(params[name] for name in MACROS))


def options(points: Sequence[Point], problem: SdpaProblem) -> dict[str, Any]:
    """The arguments of kernel_tuner.tune_kernel that say what the kernel is and which configurations there are."""
    if any(problem.seq_q % int(point["BLOCK_M"]) for point in points):
        raise ValueError("Kernel Tuner's grid is seq_q / BLOCK_M: the sequence must be a multiple of every BLOCK_M")
    wanted = {key(point) for point in points}
    names = ("THREADS", "REDUCE", *MACROS)
    values = {name: sorted({each[place] for each in wanted}) for place, name in enumerate(names)}

    def numbered(name: str) -> Any:
        return lambda params: params[name]

    def listed(params: Point) -> bool:  # no lambda: Kernel Tuner would read its source
        return key(params) in wanted

    def needed(params: Point) -> int:
        return shared_bytes({**params, "NUM_WARPS": int(params["THREADS"]) // 32}, problem.head_dim)

    return {
        "kernel_name": KERNEL,
        "kernel_source": SOURCE,
        "problem_size": (problem.batch * problem.heads * problem.seq_q,),
        "tune_params": values,
        "grid_div_x": ["BLOCK_M"],
        "block_size_names": ["THREADS"],
        "restrictions": listed,
        "smem_args": {"size": needed},
        "defines": {
            **{name: numbered(name) for name in MACROS},
            "NUM_WARPS": lambda params: params["THREADS"] // 32,
            "REDUCE_IS_SHARED": lambda params: int(params["REDUCE"] == "shared"),
            "HEAD_DIM": str(problem.head_dim),
            "CAUSAL": str(int(problem.causal)),
        },
        "lang": "cupy",
        "atol": ATOL,
    }


@contextmanager
def headers(toolchain: CudaToolchain, family: Family) -> Iterator[list[str]]:
    """Compiler options of NVRTC: our headers, the toolkit's, and a stdint.h in a folder that is there in the block."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "stdint.h").write_text(TYPES)
        toolkit = [path for path in toolchain.include_dirs if (path / "cuda_fp16.h").is_file()]
        folders = (folder, abi_dir(), *family.include_dirs, *toolkit[:1])
        yield ["-std=c++20", "-default-device", *(f"-I{path}" for path in folders)]


def compile_all(
    points: Sequence[Point], problem: SdpaProblem, toolchain: CudaToolchain, compiler_options: list[str]
) -> list[str]:
    """Compiles the wrapper with nvcc for every configuration. The log of each, "" where it was accepted.

    Raises AssertionError where shared memory or threads of a binary are not what Kernel Tuner is told.
    """
    described = options(points, problem)

    def one(point: Point) -> str:
        params = dict(zip(described["tune_params"], key(point), strict=True))
        macros = {name: value(params) if callable(value) else value for name, value in described["defines"].items()}
        source = "".join(f"#define {name} {value}\n" for name, value in macros.items()) + SOURCE
        with tempfile.TemporaryDirectory() as folder:
            unit, binary = Path(folder) / "unit.cu", Path(folder) / "unit.cubin"
            unit.write_text(source)
            # The host's stdint.h and math.h are there for nvcc.
            flags = [flag for flag in compiler_options[2:] if not (Path(flag[2:]) / "stdint.h").is_file()]
            done = run([toolchain.nvcc, *toolchain.flags, *flags, str(unit), "-o", str(binary)], 300)
            if done is None or done.returncode:
                return done.stdout if done is not None else "no end after 300 s"
            shape = Geometry.read(binary)
            assert (shape.dynamic_shared, shape.threads) == (shared_bytes(point, problem.head_dim), params["THREADS"])
        return ""

    with ThreadPoolExecutor(usable_cpus()) as pool:
        return list(pool.map(one, points))


def judge(points: Sequence[Point], problem: SdpaProblem, compiler_options: list[str]) -> dict[str, Any]:
    """Judges the configurations with Kernel Tuner: cupy backend, its default iterations, a fresh cache of kernels.

    Inputs and answer are made before the clock starts. Raises RuntimeError when one of them is not verified.
    """
    arguments, answer = inputs(problem)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["CUPY_CACHE_DIR"] = folder  # read when cupy is imported
        import kernel_tuner  # type: ignore[import-not-found,import-untyped,unused-ignore]

        started = time.perf_counter()
        results, environment = kernel_tuner.tune_kernel(
            arguments=arguments,
            answer=answer,
            compiler_options=compiler_options,
            quiet=True,
            **options(points, problem),
        )
        seconds = time.perf_counter() - started
    judged = [result for result in results if isinstance(result.get("time"), float)]
    return {
        "judged": len(results),
        "timed": len(judged),
        "seconds": seconds,
        "a_minute": 60 * len(results) / seconds,
        "best_ms": min((result["time"] for result in judged), default=math.nan),
        "stages_ms": {name: float(value) for name, value in environment.items() if name.startswith("total_")},
        "iterations": environment.get("iterations"),
        "atol": ATOL,
    }


def inputs(problem: SdpaProblem, device: str = "cuda") -> tuple[list[Any], list[Any]]:
    """Arguments of the kernel, and what they are to become: only the output is compared, with torch's SDPA."""
    import torch

    draw = torch.Generator().manual_seed(1)
    shapes = [(problem.batch, problem.heads, length, problem.head_dim) for length in (problem.seq_q, problem.seq_k)]
    q, k, v = (torch.randn(shape, generator=draw).half() for shape in (shapes[0], shapes[1], shapes[1]))
    attention = torch.nn.functional.scaled_dot_product_attention
    expected = attention(q.to(device), k.to(device), v.to(device), is_causal=problem.causal).cpu()
    sizes = [np.int32(size) for size in (problem.batch, problem.heads, problem.seq_q, problem.seq_k)]
    scale = np.float32(1 / math.sqrt(problem.head_dim))
    arguments = [q.numpy(), k.numpy(), v.numpy(), np.zeros(shapes[0], dtype=np.float16), *sizes, scale]
    answer = [None, None, None, expected.numpy(), None, None, None, None, None]
    return arguments, answer
