"""The mutants for CUDA on the host emulator: the gate's numeric levels say of one what expected_cuda.toml expects, and
the emulator sees the systemic ones that it can see. Their real judge is a device; benchmarks/gate/emulated.py judges
all, and the right implementations."""

from functools import partial

import pytest

from autotuner.gate.cases import Matrix
from autotuner.gate.tolerance import judge, truth
from tests.emulator.emulator import EmulationError
from tests.helpers import needs
from tests.helpers.emulated import first_failure, outputs, require_same_bits, seen
from tests.mutants.expectations import SEEDS, Expectation, expectations

pytestmark = needs.emulator


WRONG = [each for group in expectations("cuda", "numeric") for each in group if seen(each) and each.codes != ("pass",)]


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("expectation", WRONG, ids=str)
def test_a_numeric_mutant_breaks_the_rule_that_is_expected(expectation: Expectation) -> None:
    assert first_failure(expectation) in expectation.codes


COMPLAINTS = {
    "deadlock": "deadlock",
    "illegal_address": "access to 0x100",
    "misaligned_address": "misaligned",
    "missing_barrier": "differ",
    "missing_barrier_at_ragged_end": "differ",
    "reads_past_k": "outside K",
    "reads_past_k_and_drops_it": "outside K",
    "reads_past_q": "outside Q",
    "reads_past_v": "outside V",
    "stores_whole_tiles": "outside O|O was written",
    "writes_before_o": "outside O|O was written",
    "writes_past_o": "outside O|O was written",
}
"""What the emulator says of the faults that it can see; memory next to a tensor is checked on one side a seed."""


def systemic(name: str) -> Expectation:
    return next(group[0] for group in expectations("cuda", "systemic") if group[0].name == name)


def two_launches_agree(name: str) -> None:
    expectation = systemic(name)
    case = Matrix(expectation.problem).case((1, 2, 21, 45))
    require_same_bits(case, partial(outputs, expectation, case))


@pytest.mark.slow
def test_the_systemic_kernel_without_a_fault_is_right() -> None:
    two_launches_agree("none")
    expectation = systemic("none")
    for case in Matrix(expectation.problem).quick():
        expected = truth(case, SEEDS[0])
        assert judge(outputs(expectation, case, expected.inputs)[0], expected.outputs[0]).failed_rule is None


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", COMPLAINTS)
def test_a_systemic_fault_is_there(name: str) -> None:
    with pytest.raises(EmulationError, match=COMPLAINTS[name]):
        two_launches_agree(name)
