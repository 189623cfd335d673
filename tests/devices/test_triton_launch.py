"""What the host side of a kernel of Triton hands to the driver, told by a driver that is made up: no GPU is needed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from autotuner.devices.cuda import triton
from autotuner.devices.cuda.toolchain import CudaToolchain
from autotuner.forge.build import build
from autotuner.forge.family import Family
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.values.variant import Variant
from tests.helpers.files import text
from tests.helpers.judging import artifact_of

FAMILY = Path(__file__).parent.parent / "mutants" / "of_triton"
PROBLEM = SdpaProblem(batch=2, heads=4, heads_kv=2, seq_q=70, seq_k=90, head_dim=64, dtype="float16", causal=True)
POINT = {"MUTANT": "none", "BLOCK_M": 64, "BLOCK_N": 64, "NUM_WARPS": 4, "STAGES": 2}
DRIVER = text("driver_of_launches.cpp")
CALL = """
import sys
from types import SimpleNamespace
from autotuner.forge.loaded_variant import LoadedVariant
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.values.outcome import Artifact

problem = SdpaProblem.model_validate_json(sys.argv[2])
device = SimpleNamespace(type="cuda")

def tensor(place, heads, length):
    shape = (problem.batch, heads, length, 64)
    strides = (heads * length * 64, length * 64, 64, 1)
    named = dict(data_ptr=lambda: place, dtype="float16", device=device, shape=shape, stride=lambda: strides)
    return SimpleNamespace(**named)

inputs = (tensor(4096, 4, problem.seq_q), tensor(8192, 2, problem.seq_k), tensor(12288, 2, problem.seq_k))
variant = LoadedVariant(Artifact.model_validate_json(sys.argv[1]))
sys.exit(variant.run(problem, inputs, (tensor(16384, 4, problem.seq_q),), 0, 0))
"""


@pytest.mark.skipif(not triton.is_usable(), reason="no Triton")
def test_arguments_grid_and_block_are_those_that_kernel_toml_says(tmp_path: Path, nvcc: CudaToolchain) -> None:
    variant = Variant(family="of_triton", backend="cuda", impl="mutant", parameters=POINT)
    built = artifact_of(build(Family.load(FAMILY), variant, PROBLEM, nvcc))
    (tmp_path / "driver.cpp").write_text(DRIVER)
    includes = [f"-I{folder}" for folder in nvcc.include_dirs]
    command = [nvcc.compiler, "-shared", "-fPIC", *includes, "driver.cpp", "-o", "libcuda.so.1"]
    subprocess.run(command, cwd=tmp_path, check=True)
    done = subprocess.run(
        [sys.executable, "-c", CALL, built.model_dump_json(), PROBLEM.model_dump_json()],
        env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    told = json.loads(done.stdout)
    assert told[:5] == [2 * 2 * 4, 1, 1, 128, built.resources["dynamic_shared_bytes"]]
    given = told[5:]
    dense = {"q": [4 * 70 * 64, 70 * 64, 64], "k": [2 * 90 * 64, 90 * 64, 64]}
    assert given[:4] == [4096, 8192, 12288, 16384]
    assert given[4:16] == [*dense["q"], *dense["k"], *dense["k"], *dense["q"]]
    assert given[16:20] == [4, 2, 70, 90]
    assert given[20:] == [0.125, 1]
