"""The mutants and the right implementations for CUDA on the host emulator: the gate's numeric levels say of them what
expected_cuda.toml expects, and the emulator sees the systemic ones that it can see. Their real judge is a device."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
import torch
from torch import Tensor

from autotuner.devices.facts import usable_cpus
from autotuner.gate.cases import Case, Matrix
from autotuner.gate.tolerance import judge, truth
from autotuner.values import config
from tests.emulator.emulator import EmulationError, cuda_include, emulate
from tests.mutants.expectations import MUTANTS, SEEDS, Expectation, expectations

pytestmark = pytest.mark.skipif(
    cuda_include() is None or config.cxx() is None, reason="needs the CUDA toolkit's headers and a C++ compiler"
)

SOURCES = {"numeric": "mutants.cu", "right": "right.cu", "systemic": "systemic.cu"}
TILES = {"numeric": (64, 64), "right": (32, 64)}
NUMERIC = ("G1.unwritten", "G2", "G5", "pass")
"""What is compared with a reference. The invariants of G3 are left to a device."""


def output(expectation: Expectation, case: Case, tensors: tuple[Tensor, Tensor, Tensor], seed: int = 0) -> Tensor:
    """O of one emulated launch."""
    source = MUTANTS / expectation.table / SOURCES[expectation.table]
    return emulate(source, expectation.variant.parameters, case.problem, *tensors, seed)


def cases(expectation: Expectation) -> Iterator[tuple[str, Case, int]]:
    """The cases of G2 and G5 in the gate's order: level, case and the secret seed's number."""
    matrix = Matrix(expectation.problem)
    for index, case in enumerate(matrix.quick()):
        yield "G2", case, index
    for index, case in enumerate(matrix.quick()):
        yield "G5", case, index + 1
    for index, case in enumerate(matrix.full(TILES[expectation.table])):
        yield "G5", case, index
        yield "G5", case, index + 2


def first_failure(expectation: Expectation) -> str:
    """The code of the first numeric level that fails; "pass" when none does."""
    smoke = Matrix(expectation.problem).case((1, 2, 65, 65))
    q, k, v, *_ = truth(smoke, SEEDS[0])
    if not torch.isfinite(output(expectation, smoke, (q, k, v))).all():
        return "G1.unwritten"

    def failed(wanted: tuple[str, Case, int]) -> str | None:
        level, case, index = wanted
        expected = truth(case, SEEDS[index % 4])
        rule = judge(output(expectation, case, expected[:3]), expected).failed_rule
        return rule and f"{level}.{rule}"

    with ExitStack() as stack:  # a launch is a process of its own, so that several run side by side
        pool = ThreadPoolExecutor(usable_cpus())
        stack.callback(pool.shutdown, cancel_futures=True)
        return next((code for code in pool.map(failed, cases(expectation)) if code), "pass")


def some_of(table: str) -> list[object]:
    """One setting of every second entry; which one it is goes round. The others are for a device to judge."""
    groups = expectations("cuda", table)[::2]
    return [
        pytest.param(group[index % len(group)], id=str(group[index % len(group)])) for index, group in enumerate(groups)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("expectation", some_of("numeric"))
def test_a_numeric_mutant_breaks_the_rule_that_is_expected(expectation: Expectation) -> None:
    if not any(code.startswith(NUMERIC) for code in expectation.codes):
        pytest.skip("an invariant finds it, not a case")
    assert first_failure(expectation) in expectation.codes


@pytest.mark.slow
@pytest.mark.parametrize("expectation", some_of("right"))
def test_a_right_implementation_is_within_the_tolerances(expectation: Expectation) -> None:
    assert first_failure(expectation) == "pass"


COMPLAINTS = {
    "deadlock": "deadlock",
    "illegal_address": "access to 0x100",
    "misaligned_address": "misaligned",
    "missing_barrier": "differ",
    "missing_barrier_at_ragged_end": "differ",
    "reads_past_k": "outside K",
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
    """Raises EmulationError when a launch breaks a rule, or another schedule gives other bits."""
    expectation = systemic(name)
    case = Matrix(expectation.problem).case((1, 2, 21, 45))
    q, k, v, *_ = truth(case, SEEDS[0])
    first = output(expectation, case, (q, k, v))
    for seed in range(1, 6):
        other = output(expectation, case, (q, k, v), seed)
        if not torch.equal(first.view(torch.int16), other.view(torch.int16)):
            raise EmulationError("two schedules differ")


def test_the_systemic_kernel_without_a_fault_is_right() -> None:
    two_launches_agree("none")
    expectation = systemic("none")
    for case in Matrix(expectation.problem).quick():
        expected = truth(case, SEEDS[0])
        assert judge(output(expectation, case, expected[:3]), expected).failed_rule is None


@pytest.mark.parametrize("name", COMPLAINTS)
def test_a_systemic_fault_is_there(name: str) -> None:
    with pytest.raises(EmulationError, match=COMPLAINTS[name]):
        two_launches_agree(name)
