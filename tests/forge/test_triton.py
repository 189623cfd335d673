"""A kernel of Triton as a variant: what does not fit is refused in one line, what is built is like CUDA's, and the
host side hands to the driver what kernel.toml says, told by a driver that is made up: no GPU is needed."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from autotuner.devices.cuda import triton
from autotuner.devices.cuda.toolchain import CudaToolchain
from autotuner.forge.build import build
from autotuner.forge.family import Family
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.tuning.workbench import load_space
from autotuner.values.errors import KernelError, ToolchainError
from autotuner.values.outcome import Artifact
from autotuner.values.variant import Variant
from autotuner.values.verdict import Fault
from tests.helpers.files import refusals, text
from tests.helpers.judging import artifact_of
from tests.helpers.refusing import refused

WRONG = Path(__file__).parent.parent / "mutants" / "of_triton"
PROBLEM = SdpaProblem(batch=1, heads=4, heads_kv=2, seq_q=64, seq_k=64, head_dim=64, dtype="float16", causal=True)
POINT = {"MUTANT": "none", "BLOCK_M": 64, "BLOCK_N": 64, "NUM_WARPS": 4, "STAGES": 2}


def changed(tmp_path: Path, old: str, new: str, file: str = "kernel.toml") -> Path:
    """The family with another text."""
    shutil.copytree(WRONG, tmp_path / "of_triton")
    path = tmp_path / "of_triton" / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    return tmp_path / "of_triton"


@pytest.mark.parametrize(("old", "new", "said"), refusals("triton_call"))
def test_a_call_that_does_not_fit_is_refused_in_one_line(tmp_path: Path, old: str, new: str, said: str) -> None:
    with refused(KernelError, says=said):
        Family.load(changed(tmp_path, old, new))


def test_a_space_that_leaves_parameters_to_its_family_says_what_is_wrong_there(tmp_path: Path) -> None:
    changed(tmp_path, "grid = [", 'grid = ["0", ')
    space = shutil.copy(WRONG.parent / "of_triton.toml", tmp_path)
    with refused(KernelError, says="grid[0]: found 0, expected 1 or more"):
        load_space(str(space))


@pytest.mark.parametrize(("found", "said"), [("absent", "and there is none"), ("3.5.1", "and this is 3.5.1")])
def test_without_a_new_enough_triton_one_line_says_so(
    nvcc: CudaToolchain, monkeypatch: pytest.MonkeyPatch, found: str, said: str
) -> None:
    monkeypatch.setattr(triton, "version_of", lambda _: found)
    variant = Variant(family="of_triton", backend="cuda", impl="mutant", parameters=POINT)
    with pytest.raises(ToolchainError, match=f"needs Triton 3.6 or newer, {said}; pip install"):
        build(Family.load(WRONG), variant, PROBLEM, nvcc)
    assert not triton.is_usable()


def made(family: Family, nvcc: CudaToolchain, **point: int | str) -> Artifact | Fault:
    parameters = {**POINT, **point}
    return build(
        family, Variant(family="of_triton", backend="cuda", impl="mutant", parameters=parameters), PROBLEM, nvcc
    )


@pytest.mark.skipif(not triton.is_usable(), reason="no Triton")
def test_what_is_built_is_looked_at_as_cuda_is(nvcc: CudaToolchain, tmp_path: Path) -> None:
    family = Family.load(WRONG)
    right, other = made(family, nvcc), made(family, nvcc, MUTANT="at_most_2048_keys")
    assert isinstance(right, Artifact), right
    assert isinstance(other, Artifact), other
    assert 0 < right.resources["registers"] <= 255
    assert right.resources["threads"] == 128
    assert right.resources["dynamic_shared_bytes"] > 0
    assert right.program_hash != other.program_hash
    used = nvcc.of("triton")
    folder = Path(right.path).parent
    assert used.misconduct(folder, False, False) is None
    assert "HGMMA" in (used.disassembly(Path(right.path)) or "")
    same = made(Family.load(changed(tmp_path, '"none" is right', '"none" is the right one', "mutants_triton.py")), nvcc)
    assert isinstance(same, Artifact), same
    assert (same.digest == right.digest, same.program_hash == right.program_hash) == (False, True)


@pytest.mark.skipif(not triton.is_usable(), reason="no Triton")
def test_what_triton_refuses_is_a_failed_build_with_its_words(nvcc: CudaToolchain, tmp_path: Path) -> None:
    broken = changed(tmp_path, "tl.dot(q, k)", "tl.dot(q, factor)", "mutants_triton.py")
    failed = made(Family.load(broken), nvcc)
    assert isinstance(failed, Fault)
    assert failed.code == "build.failed"
    assert "tl.dot(q, factor)" in failed.detail


# What the driver is given ---------------------------------------------------------------------------------------------


LAUNCHED = SdpaProblem(batch=2, heads=4, heads_kv=2, seq_q=70, seq_k=90, head_dim=64, dtype="float16", causal=True)
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
    built = artifact_of(build(Family.load(WRONG), variant, LAUNCHED, nvcc))
    (tmp_path / "driver.cpp").write_text(DRIVER)
    includes = [f"-I{folder}" for folder in nvcc.include_dirs]
    command = [nvcc.compiler, "-shared", "-fPIC", *includes, "driver.cpp", "-o", "libcuda.so.1"]
    subprocess.run(command, cwd=tmp_path, check=True)
    done = subprocess.run(
        [sys.executable, "-c", CALL, built.model_dump_json(), LAUNCHED.model_dump_json()],
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
