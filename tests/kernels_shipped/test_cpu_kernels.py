"""The shipped CPU kernels: they are right and pass the gate, the exponentials keep their documented errors, and threads
are a variant's own, or those on which torch's operators run."""

import ctypes
import math
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from autotuner.devices.cpu.machine import cpu_facts
from autotuner.devices.cpu.toolchain import FLAGS, CpuToolchain
from autotuner.forge.build import build
from autotuner.forge.family import Family
from autotuner.forge.loaded_variant import LoadedVariant
from autotuner.gate.cases import Case
from autotuner.gate.tolerance import compute_truth, judge
from autotuner.ops import op_of
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.tuning.workbench import Workbench, load_space
from autotuner.values import config
from autotuner.values.variant import Value, Variant
from tests.helpers.judging import artifact_of, briefly, judged, launched
from tests.helpers.points import chosen
from tests.helpers.tables import FOLDER
from tests.mutants.expectations import SEEDS

SLOW = [pytest.mark.slow]
ONE_THREAD: dict[str, Value] = {"THREADS": 1, "SYNC_POLICY": 0}
"""Where tests run beside each other two threads wait for each other for most of the time."""


@pytest.mark.timed
@pytest.mark.slow
def test_a_point_of_the_scalar_source_passes_the_gate() -> None:
    """benchmarks/timing/audits.py judges hundreds of each space, and tests/house/test_wheel.py the default point."""
    here = Workbench(load_space("sdpa_cpu", problems=["(1,4:2,64x128,64) float32 full bshd lse"]))
    branch, first = here.space.branch_of("scalar") or pytest.fail("no point of scalar")
    point = chosen(here.space, {**here.space.point(first + len(branch) - 1), **ONE_THREAD})
    with closing(here.executor()) as executor:
        outcome = judged(executor, here.variant(point), briefly(here.conditions.compiled_for, SEEDS), soak="never")
    assert outcome.fault is None, outcome.fault
    assert outcome.gate.passed


UNIT = """
#define VEC_WIDTH {width}
#define BF16_DOT 0
#define EXP_{name} 1
#include "cpu_math.h"
extern "C" void powers(const float *x, float *y, long count) {{
  for (long i = 0; i + VEC_WIDTH <= count; i += VEC_WIDTH) store(y + i, exp2_nonpositive(load(x + i)));
}}
"""
COARSE, FINE = 2.0**-13, 2.0**-22


@pytest.mark.timed
@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("name", "bound"),
    [(name, COARSE) for name in ("POLY3", "SCALEF3", "TABLE1")]
    + [(name, FINE) for name in ("POLY5", "POLY6", "SCALEF5", "TABLE2")],
)
def test_the_exponentials_keep_their_error(name: str, bound: float, toolchain: CpuToolchain, tmp_path: Path) -> None:
    wide = cpu_facts(1)["CPU_VECTOR_BYTES"] == 64
    if not wide and name.startswith(("SCALEF", "TABLE")):
        pytest.skip("needs AVX-512")
    (tmp_path / "unit.cpp").write_text(UNIT.format(width=16 if wide else 4, name=name))
    library = tmp_path / "unit.so"
    folder = config.kernels_dir() / "sdpa"
    flags = [*FLAGS, "-fvisibility=default", "-shared", f"-I{folder}", f"-I{folder.parent / 'abi'}"]
    subprocess.run([toolchain.compiler, *flags, "unit.cpp", "-o", str(library)], cwd=tmp_path, check=True)
    x = np.concatenate(
        [-np.linspace(0, 126, 1 << 20, dtype=np.float32), -np.geomspace(1e-8, 1, 1 << 16, dtype=np.float32)]
    )
    x = np.ascontiguousarray(x[: len(x) // 16 * 16])
    y = np.empty_like(x)
    pointers = [array.ctypes.data_as(ctypes.POINTER(ctypes.c_float)) for array in (x, y)]
    ctypes.CDLL(str(library)).powers(*pointers, ctypes.c_long(len(x)))
    exact = np.exp2(x.astype(np.float64))
    assert float(np.abs(y / exact - 1).max()) <= bound
    assert y[0] == 1.0


# Head dimensions that no space has ------------------------------------------------------------------------------------


POINTS = [
    pytest.param(impl, f"(1,4:2,70x91,{dim}) {dtype} {mask} bshd lse", id=f"{impl}-{dim}-{dtype}")
    for place, dim in enumerate((80, 96, 192, 256))
    for dtype in ("float32", "float16", "bfloat16")
    for impl, mask in zip(("scalar", "simd"), (("full", "causal"), ("causal", "full"))[place % 2], strict=True)
]
WINDOWS = [
    pytest.param(
        impl, f"(1,4:2,{sizes},64) {dtype} {mask} lse", 8 if place % 2 else 1, id=f"{impl}-{sizes}-{mask}", marks=marks
    )
    for place, (sizes, dtype, mask) in enumerate(
        (
            ("300", "float32", "causal window=100"),
            ("170x203", "bfloat16", "full window=70,20 bottom_right lengths"),
            ("203x60", "float16", "causal window=20 bshd"),
            ("113x203", "float32", "causal window=70 softcap=20"),
            ("70x203", "bfloat16", "causal bottom_right lengths sinks=float32"),
            ("203x60", "float16", "causal window=20 sinks bshd"),
            ("70x203", "bfloat16", "causal bottom_right lengths bias=alibi"),
            ("113x203", "float32", "full bias=full"),
            ("70x91", "float16", "causal softcap=20 bias=heads sinks bshd"),
            ("1x203", "float32", "causal bottom_right lengths sinks"),
            ("1x515", "bfloat16", "full softcap=20 bshd"),
        )
    )
    for impl, marks in (
        ("simd", pytest.mark.sampled(2, "simd windows")),
        ("scalar", [*SLOW, pytest.mark.sampled(1, "scalar windows")]),
    )
]


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("distribution", ["gaps", "huge"])
@pytest.mark.parametrize(("impl", "text"), POINTS)
def test_outputs_are_within_tolerance(impl: str, text: str, distribution: str) -> None:
    require_right(impl, text, distribution)


@pytest.mark.parametrize(("impl", "text", "threads"), WINDOWS)
def test_windows_are_within_tolerance(impl: str, text: str, threads: int) -> None:
    """More threads than there are heads share the keys of each."""
    with_numbers = "bias=full" in text or "bias=heads" in text
    require_right(impl, text, "hiding" if with_numbers else "far_sinks" if "sinks" in text else "edges", threads)


def require_right(impl: str, text: str, distribution: str, threads: int = 1) -> None:
    workbench = Workbench(load_space("sdpa_cpu", problems=[text]))
    point = {**workbench.space.completed({"IMPL": impl}), **ONE_THREAD, "THREADS": threads}
    variant = Variant.of("sdpa", "cpu", point)
    built = artifact_of(build(workbench.family, variant, SdpaProblem.parse(text), workbench.toolchain))
    problem = SdpaProblem.parse(text)
    truth = compute_truth(Case(name=text, problem=problem, distribution=distribution), 1, "cpu")
    outputs = op_of(problem).tensors().outputs(problem, truth.inputs)
    for each in outputs:
        each.fill_(torch.nan)
    launched(LoadedVariant(built), problem, truth.inputs, outputs)
    for found, expected in zip(outputs, truth.outputs, strict=True):
        errors = judge(found, expected)
        assert errors.failed_rule is None, (text, errors)


# Numbers at the end of their range ------------------------------------------------------------------------------------


SCALAR: dict[str, Value] = {"BLOCK_N": 64, "EXP": "poly5", "UNROLL": 4, **ONE_THREAD}


def loaded(problem: SdpaProblem, impl: str, **parameters: Value) -> LoadedVariant:
    """A variant of the shipped family; of `simd` the default point of a CPU space with these parameters."""
    here = Workbench(load_space("sdpa_cpu", problems=[str(problem)]))
    point = dict(here.variant(here.space.default_index).parameters) if impl == "simd" else dict(SCALAR)
    variant = Variant(family="sdpa", backend="cpu", impl=impl, parameters={**point, **parameters})
    made = artifact_of(build(here.family, variant, problem, here.toolchain))
    return LoadedVariant(made)


def tutorial(problem: SdpaProblem) -> LoadedVariant:
    """The kernel of docs/my-kernel.md."""
    here = Workbench(load_space("sdpa_cpu"))
    parameters: dict[str, Value] = {"BLOCK_N": 16, "EXP": "poly", "ROWS": 4}
    variant = Variant(family="rows", backend="cpu", impl="plain", parameters=parameters)
    made = artifact_of(build(Family.load(FOLDER / "rows"), variant, problem, here.toolchain))
    return LoadedVariant(made)


def answers(variant: LoadedVariant, problem: SdpaProblem, inputs: tuple[Tensor, ...]) -> Tensor:
    found = torch.empty_like(inputs[0])
    launched(variant, problem, inputs, (found,))
    return found


def test_what_is_no_number_does_not_become_one() -> None:
    problem = SdpaProblem.parse("(1,1,8,64) float32")
    variant = loaded(problem, "scalar")
    for place, bad in product((0, 1), (math.nan, math.inf, -math.inf)):
        inputs = torch.randn(3, 1, 1, 8, 64).unbind()
        inputs[place][0, 0, 0, 0] = bad
        q, k, v = inputs
        right = torch.softmax(q @ k.transpose(2, 3) / 8, -1) @ v
        assert (answers(variant, problem, inputs).isnan() == right.isnan()).all(), (place, bad)


@pytest.mark.parametrize("impl", ["simd", "tutorial"])
def test_where_all_scores_are_minus_infinity_no_later_key_is_seen(impl: str) -> None:
    problem = SdpaProblem.parse("(1,1,64,64) float32 causal")
    q, k, v = torch.full((1, 1, 64, 64), 1e19), torch.full((1, 1, 64, 64), -1e19), torch.randn(1, 1, 64, 64)
    variant = tutorial(problem) if impl == "tutorial" else loaded(problem, impl)
    found = answers(variant, problem, (q, k, v))
    assert found.isnan().all()


def test_large_scores_of_bfloat16_stay_numbers() -> None:
    """Each query is one of the keys: the softmax is 1 there, and O is a row of V."""
    problem = SdpaProblem.parse("(1,1,64,64) bfloat16")
    q, v = (scale * torch.randn(1, 1, 64, 64).to(torch.bfloat16) for scale in (3e4, 1))
    for dot in (0, 1) if cpu_facts(1)["CPU_BF16_DOT"] else (0,):
        found = answers(loaded(problem, "simd", BF16_DOT=dot, PACK_K=2, PACK_V=1), problem, (q, q.clone(), v))
        assert (found == v).all()


def test_a_forked_child_does_not_wait_for_torchs_threads() -> None:
    """Those of the OpenMP runtime are not there."""
    problem = SdpaProblem.parse("(1,2,64,64) float32")
    variant = loaded(problem, "scalar", THREADS=2, SYNC_POLICY=4)
    inputs = torch.randn(3, 1, 2, 64, 64).unbind()
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    right = answers(variant, problem, inputs)
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(60)
        os._exit(0 if (answers(variant, problem, inputs) == right).all() else 1)
    torch.set_num_threads(before)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# How threads meet -----------------------------------------------------------------------------------------------------


PROBLEM = SdpaProblem(batch=1, heads=2, seq_q=64, seq_k=64, head_dim=64, dtype="float32")


@pytest.fixture
def torch_on_two_threads() -> Iterator[None]:
    """torch has run an operator on two threads, which wait for the next one."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    torch.ones(1 << 20).sin().sum()
    yield
    torch.set_num_threads(before)


def threads() -> int:
    """Of this process."""
    return len(list(Path("/proc/self/task").iterdir()))


def computed(policy: int) -> torch.Tensor:
    """What a variant of two threads gives for a call."""
    variant = loaded(PROBLEM, "scalar", THREADS=2, SYNC_POLICY=policy)
    return [answers(variant, PROBLEM, INPUTS) for _ in range(3)][-1]


INPUTS = Q, K, V = torch.randn(3, 1, 2, 64, 64).unbind()
RIGHT = torch.nn.functional.scaled_dot_product_attention(Q, K, V)


@pytest.mark.usefixtures("torch_on_two_threads")
@pytest.mark.parametrize(("policy", "more"), [(0, 0), (1, 1), (4, 0)])
def test_threads_are_made_or_torchs(policy: int, more: int) -> None:
    before = threads()
    found = computed(policy)
    assert threads() - before == more
    torch.testing.assert_close(found, RIGHT)


def test_of_torchs_threads_one_alone_does_all_parts() -> None:
    assert torch.get_num_threads() == 1
    torch.testing.assert_close(computed(4), RIGHT)
