"""The CUDA mutants and right implementations of the ops in tests/mutants/NAME on the host emulator: the gate's numeric
levels say of them what expected_cuda.toml expects. Their real judge is a device.

A few are judged in each run; benchmarks/gate/emulated.py judges all of them.
"""

import pytest

from autotuner.gate.cases import Matrix
from autotuner.gate.tolerance import truth
from autotuner.ops.tensors import all_same_bits
from autotuner.values import config
from tests.emulator.emulator import EmulationError, cuda_include
from tests.helpers.emulated import first_failure_of, outputs_of, seen
from tests.mutants.expectations import SEEDS
from tests.mutants.of_ops import Setting, folders, settings

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        cuda_include() is None or config.cxx() is None, reason="needs the CUDA toolkit's headers and a C++ compiler"
    ),
]


def all_of(table: str) -> list[Setting]:
    """Every setting of every op."""
    return [each for op in folders() for group in settings(op, "cuda", table) for each in group]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("setting", [each for each in all_of("wrong") if seen(each)], ids=str)
def test_a_mutant_breaks_the_rule_that_is_expected(setting: Setting) -> None:
    assert first_failure_of(setting) in setting.codes


@pytest.mark.sampled(1)
@pytest.mark.parametrize("setting", all_of("right"), ids=str)
def test_a_right_implementation_is_within_the_tolerances(setting: Setting) -> None:
    assert first_failure_of(setting) == "pass"


def two_launches_agree(setting: Setting) -> None:
    """Raises EmulationError when a launch breaks a rule, or another schedule gives other bits."""
    case = Matrix(setting.problem).case((5, 67))
    inputs = truth(case, SEEDS[0]).inputs
    first = outputs_of(setting, case, inputs)
    for seed in range(1, 6):
        if not all_same_bits(first, outputs_of(setting, case, inputs, seed)):
            raise EmulationError("two schedules differ")


FAULTS = {"stores_whole_blocks": "outside Y", "factor_without_barrier": "differ"}
"""What the emulator says of the faults that only a GPU has."""


@pytest.mark.parametrize("setting", [each for each in all_of("wrong") if each.name in FAULTS], ids=str)
def test_a_fault_that_only_a_gpu_has_is_there(setting: Setting) -> None:
    with pytest.raises(EmulationError, match=FAULTS[setting.name]):
        two_launches_agree(setting)
