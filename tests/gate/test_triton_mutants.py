"""Each wrong kernel of Triton is rejected on a GPU, and the right one passes."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from autotuner.devices.cuda import triton
from autotuner.devices.cuda.toolchain import CudaToolchain
from autotuner.run.local import LocalExecutor
from tests.helpers import preload
from tests.helpers.judging import cuda_line, judged
from tests.mutants.expectations import meets
from tests.mutants.views import View, conditions, family, mutants

MUTANTS = mutants("triton")


@pytest.fixture(scope="module")
def judge(device: CudaToolchain) -> Iterator[LocalExecutor]:
    with closing(LocalExecutor(cuda_line(device, family("triton")), preload.CUDA)) as executor:
        yield executor


def test_each_has_its_expectation() -> None:
    ((_, implementation),) = family("triton").document.devices["cuda"].items()
    assert {each.name for each in MUTANTS} == {*implementation.parameters["MUTANT"]}
    assert sum(each.codes != ("pass",) for each in MUTANTS) > 25


@pytest.mark.gpu
@pytest.mark.skipif(not triton.is_usable(), reason="no Triton")
@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_a_wrong_kernel_is_rejected_and_the_right_one_passes(judge: LocalExecutor, mutant: View) -> None:
    outcome = judged(judge, mutant.variant("cuda"), conditions(mutant, "cuda"), soak="never")
    assert meets(outcome, mutant.codes), outcome.fault
