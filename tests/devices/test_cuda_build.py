"""CUDA builds without a device: identity, program hash, limits and resources, with the real nvcc."""

import re
import shutil
from pathlib import Path

import pytest

from autotuner.devices.cuda.architecture import architecture
from autotuner.devices.cuda.cubin import Geometry
from autotuner.devices.cuda.toolchain import CudaToolchain
from autotuner.forge.build import build
from autotuner.forge.family import Family
from autotuner.forge.loaded_variant import LoadedVariant
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.values import config
from autotuner.values.outcome import Artifact
from autotuner.values.problem import Problem
from autotuner.values.variant import Value, Variant
from autotuner.values.verdict import Fault, Verdict
from tests.helpers.judging import artifact_of
from tests.mutants.expectations import entries

SYSTEMIC = Path(__file__).parent.parent / "mutants" / "systemic"
PROBLEM = SdpaProblem(batch=1, heads=2, seq_q=64, seq_k=64, head_dim=64, dtype="float16")


def plain(**parameters: Value) -> Variant:
    """A variant for any lengths of a family with a parameter that nothing reads."""
    values: dict[str, Value] = {"MUTANT": "none", "BLOCK_N": 32, "DEAD": 1, "FIXED": 0, **parameters}
    return Variant(family="systemic", backend="cuda", impl="fixed", parameters=values)


@pytest.fixture(scope="module")
def kernel() -> Family:
    return Family.load(SYSTEMIC)


def made(kernel: Family, nvcc: CudaToolchain, variant: Variant, problem: Problem = PROBLEM) -> Artifact:
    return artifact_of(build(kernel, variant, problem, nvcc))


def test_flags_that_no_identity_holds_change_no_build(
    kernel: Family, nvcc: CudaToolchain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does a parameter that nothing reads, which is in the identity, make another program."""
    one = made(kernel, nvcc, plain())
    for variable in ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"):
        monkeypatch.setenv(variable, "--no-such-option")
    assert CudaToolchain.discover(architecture("sm_90")) == nvcc
    other = made(kernel, nvcc, plain(DEAD=123456))
    assert one.digest != other.digest
    assert one.name != other.name
    assert one.program_hash == other.program_hash


def test_every_compile_time_part_of_the_problem_is_a_program_of_its_own(kernel: Family, nvcc: CudaToolchain) -> None:
    problems = [PROBLEM, *(PROBLEM.model_copy(update=u) for u in ({"dtype": "bfloat16"}, {"causal": True}))]
    artifacts = [made(kernel, nvcc, plain(), problem) for problem in problems]
    assert len({artifact.digest for artifact in artifacts}) == len({a.program_hash for a in artifacts}) == 3


@pytest.mark.slow
def test_another_host_side_makes_another_program(nvcc: CudaToolchain, tmp_path: Path) -> None:
    shutil.copytree(SYSTEMIC.parent, tmp_path, dirs_exist_ok=True)
    told = tmp_path / "systemic" / "kernel.toml"
    told.write_text(told.read_text().replace("[cuda.fixed]", '[cuda.fixed]\nhost = "mine.cpp"'))
    launcher = (config.kernels_dir() / "sdpa" / "abi" / "launch.cpp").read_text()
    hashes = []
    for more in ("", "// nothing", 'extern "C" int more() { return 1; }'):
        (tmp_path / "systemic" / "mine.cpp").write_text(f"{launcher}\n{more}\n")
        hashes.append(made(Family.load(tmp_path / "systemic"), nvcc, plain()).program_hash)
    assert hashes[0] == hashes[1] != hashes[2]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "stolen",
    [
        pytest.param("extern __device__ const char at_macros[];", id="by name"),
        pytest.param(
            'extern "C" __device__ const char at_macros_0123456789abcdef[] = "x";'
            " __device__ const char *at_macros = at_macros_0123456789abcdef;",
            id="a second one",
        ),
    ],
)
def test_a_kernel_cannot_read_or_replace_what_the_build_says_of_it(
    nvcc: CudaToolchain, tmp_path: Path, stolen: str
) -> None:
    """The cubin would be one program for all values of a parameter that it reads there."""
    shutil.copytree(SYSTEMIC.parent, tmp_path, dirs_exist_ok=True)
    source = tmp_path / "systemic" / "systemic.cu"
    kernel = 'extern "C" __global__ void other(char *x) { *x = at_macros[threadIdx.x]; }'
    source.write_text(f"{source.read_text()}\n{stolen}\n{kernel}\n")
    fault = build(Family.load(tmp_path / "systemic"), plain(), PROBLEM, nvcc)
    assert isinstance(fault, Fault), fault
    assert "at_macros" in fault.detail


def test_what_no_block_may_have_is_over_the_limits(kernel: Family, nvcc: CudaToolchain) -> None:
    fault = build(kernel, plain(MUTANT="too_much_shared"), PROBLEM, nvcc)
    assert isinstance(fault, Fault)
    assert (fault.verdict, fault.code) == (Verdict.OVER_LIMITS, "G0.limits")
    assert "shared memory" in fault.detail
    assert "sm_90 has at most 232448" in fault.detail


def test_fixed_lengths_are_compiled_in_and_part_of_the_identity(kernel: Family, nvcc: CudaToolchain) -> None:
    other = PROBLEM.model_copy(update={"seq_q": 65})
    fixed = [made(kernel, nvcc, plain(FIXED=1), problem) for problem in (PROBLEM, other)]
    assert [PROBLEM.fixed_in(each.macros) for each in fixed] == [{"SEQ_Q": 64, "SEQ_K": 64}, {"SEQ_Q": 65, "SEQ_K": 64}]
    assert len({artifact.digest for artifact in fixed}) == 2
    geometry = Geometry.read(Path(fixed[1].path).parent / "variant.cubin")
    assert geometry.op[2:4] == (65, 64)
    assert LoadedVariant(fixed[1]).identity().macros["SEQ_Q"] == "65"
    free = [made(kernel, nvcc, plain(), problem) for problem in (PROBLEM, other)]
    assert free[0].digest == free[1].digest
    assert PROBLEM.fixed_in(free[0].macros) == {}


def test_the_report_of_the_assembler_is_read(kernel: Family, nvcc: CudaToolchain) -> None:
    used = made(kernel, nvcc, plain()).resources
    assert used["threads"] == 128
    assert used["registers"] > 15
    assert used["static_shared_bytes"] == used["shared_bytes"] == 8 * 32 * 4
    assert used["spill_store_bytes"] == used["spill_load_bytes"] == used["stack_bytes"] == 0
    assert used["text_bytes"] > 500


def test_every_mutant_is_in_a_source() -> None:
    """One that is not would be the right kernel. On a GPU all are judged, and so compiled."""
    written = "".join(path.read_text() for path in SYSTEMIC.parent.rglob("*") if path.suffix in (".cu", ".h"))
    known = {*re.findall(r"\b(?:MUTANT|KIND)_([A-Z0-9_]+)\b", written)}
    listed = {entry["name"].upper() for table in ("numeric", "systemic", "clock") for entry in entries("cuda", table)}
    assert sorted(listed - known - {"NONE"}) == []


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["sm_80", "sm_89"])
def test_other_architectures_compile(kernel: Family, nvcc: CudaToolchain, name: str) -> None:
    toolchain = CudaToolchain.discover(architecture(name))
    assert made(kernel, toolchain, plain()).architecture == name
