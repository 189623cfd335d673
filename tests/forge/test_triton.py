"""A kernel of Triton as a variant: what does not fit is refused in one line, and what is built is like CUDA's."""

import shutil
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
from tests.helpers.files import refusals
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
