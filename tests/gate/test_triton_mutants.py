"""Each wrong kernel of Triton is rejected on a GPU, and the right one passes."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from autotuner.devices.cuda import triton
from autotuner.devices.cuda.toolchain import CudaToolchain
from autotuner.forge.family import Family
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.run.local import LocalExecutor
from autotuner.values.variant import Variant
from tests.helpers import preload
from tests.helpers.judging import briefly, judged
from tests.helpers.lines import cuda_line

FAMILY = Family.load(Path(__file__).parent.parent / "mutants" / "of_triton")
PROBLEM = SdpaProblem(batch=2, heads=4, heads_kv=2, seq_q=128, seq_k=128, head_dim=128, dtype="bfloat16", causal=True)
CONDITIONS = briefly(PROBLEM)
MUTANTS = [str(each) for each in FAMILY.implementation("cuda", "mutant").parameters["MUTANT"]]
FINE = {"scores_in_16_bits", "total_of_16_bits", "sums_of_16_bits", "at_most_2048_keys", "rows_past_4096_unwritten"}
"""Within the rounding of bfloat16, or wrong at lengths beyond those of a problem so small: not claimed to be seen."""
POINT: dict[str, str | int] = {"BLOCK_M": 64, "BLOCK_N": 64, "NUM_WARPS": 4, "STAGES": 2}


@pytest.fixture(scope="module")
def judge(device: CudaToolchain) -> Iterator[LocalExecutor]:
    with closing(LocalExecutor(cuda_line(device, FAMILY), preload.CUDA)) as executor:
        yield executor


@pytest.mark.gpu
@pytest.mark.skipif(not triton.is_usable(), reason="no Triton")
@pytest.mark.parametrize("mutant", [each for each in MUTANTS if each not in FINE])
def test_a_wrong_kernel_is_rejected_and_the_right_one_passes(judge: LocalExecutor, mutant: str) -> None:
    variant = Variant(family="of_triton", backend="cuda", impl="mutant", parameters={"MUTANT": mutant, **POINT})
    outcome = judged(judge, variant, CONDITIONS)
    assert (outcome.verdict == "measured") == (mutant == "none"), outcome.fault
