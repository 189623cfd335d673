"""The shipped CPU kernels: points of every space pass the gate, and the exponentials keep their documented errors."""

import ctypes
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from autotuner.devices.cpu.machine import cpu_facts
from autotuner.devices.cpu.toolchain import FLAGS, CpuToolchain
from autotuner.run.executor import Executor
from autotuner.run.jobs import BuildJob, Built, JudgeJob
from autotuner.tuning.workbench import Workbench, load_space
from autotuner.values import config
from autotuner.values.outcome import Outcome

pytestmark = pytest.mark.timed

OTHERS = [pytest.mark.slow, pytest.mark.sampled(2)]
PROBLEMS = {
    "(1,4,128,64) float32 full": [],
    "(1,8,512,64) float32 full": OTHERS,
    "(1,4:2,64x128,64) float32 causal bshd lse": OTHERS,
    "(1,8,512,64) bfloat16 full": OTHERS,
}


@pytest.fixture(scope="module", params=[pytest.param(each, marks=marks) for each, marks in PROBLEMS.items()])
def workbench(request: pytest.FixtureRequest) -> Workbench:
    """A workbench for each kind of problem."""
    return Workbench(load_space("sdpa_cpu", problems=[request.param]))


def outcomes(workbench: Workbench, indices: list[int]) -> Iterator[Outcome]:
    """Judges points of the space, timed in two blocks only."""
    conditions = workbench.conditions.model_copy(
        update={"baselines": ("flash",), "min_blocks": 2, "max_blocks": 2, "cache": "warm", "seeds": (5, 6, 7, 8)}
    )
    with closing(workbench.executor()) as executor:
        jobs = [executor.submit(BuildJob(variant=workbench.variant(index), conditions=conditions)) for index in indices]
        built = dict(ended(executor) for _ in jobs)  # all first: several are built side by side
        for job in jobs:
            made = built[job]
            if isinstance(made, Built):
                executor.submit(JudgeJob(built=made, conditions=conditions, soak="never"))
                made = ended(executor)[1]
            assert isinstance(made, Outcome)
            yield made


def ended(executor: Executor) -> tuple[int, object]:
    """The next job to end, and its result."""
    done = executor.wait(300)
    assert done is not None
    return done


def test_the_default_and_a_random_point_pass_the_gate(workbench: Workbench) -> None:
    """benchmarks/timing/audits.py judges hundreds of each space."""
    drawn = int(np.random.default_rng(1).integers(len(workbench.space)))
    for outcome in outcomes(workbench, [workbench.space.default_index, drawn]):
        assert outcome.fault is None, (outcome.variant, outcome.fault)
        assert outcome.gate.passed


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_the_scalar_source_passes_too(workbench: Workbench) -> None:
    branch, first = workbench.space.branch_of("scalar") or pytest.fail("no point of scalar")
    for outcome in outcomes(workbench, [first, first + len(branch) - 1]):
        assert outcome.fault is None, (outcome.variant, outcome.fault)


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


@pytest.mark.parametrize(
    ("name", "bound"),
    [
        ("POLY3", COARSE),
        ("SCALEF3", COARSE),
        ("TABLE1", COARSE),
        ("POLY5", FINE),
        ("POLY6", FINE),
        ("SCALEF5", FINE),
        ("TABLE2", FINE),
    ],
)
def test_the_exponentials_keep_their_error(name: str, bound: float, toolchain: CpuToolchain, tmp_path: Path) -> None:
    wide = cpu_facts(1)["CPU_VECTOR_BYTES"] == 64
    if not wide and name.startswith(("SCALEF", "TABLE")):
        pytest.skip("needs AVX-512")
    (tmp_path / "unit.cpp").write_text(UNIT.format(width=16 if wide else 4, name=name))
    library = tmp_path / "unit.so"
    folder = config.kernels_dir() / "sdpa"
    command = [
        toolchain.compiler,
        *FLAGS,
        "-fvisibility=default",
        "-shared",
        f"-I{folder}",
        f"-I{folder.parent / 'abi'}",
        "unit.cpp",
    ]
    subprocess.run([*command, "-o", str(library)], cwd=tmp_path, check=True)
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
