"""The gate against the mutants and right implementations of the ops in tests/mutants/NAME, on the CPU; for CUDA they
are compiled.

A few are judged in each run; benchmarks/gate/op_mutants.py judges all in every element type.
"""

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from autotuner.devices.cpu.toolchain import CpuToolchain
from autotuner.devices.cuda.toolchain import CudaToolchain
from autotuner.forge.build import build
from autotuner.gate.cases import Matrix
from autotuner.run.local import LocalExecutor
from tests.emulator.emulator import EmulationError
from tests.helpers import needs, preload
from tests.helpers.emulated import first_failure_of, outputs_of, require_same_bits, seen
from tests.helpers.judging import artifact_of, cpu_line
from tests.mutants.expectations import Backend, meets
from tests.mutants.of_ops import Setting, family, folders, settings

Judge = Callable[[Setting], LocalExecutor]


KINDS: tuple[Backend, ...] = ("cpu", "cuda")


def all_of(table: str, kind: Backend = "cpu") -> list[Setting]:
    """Every setting of every op."""
    return [each for op in folders() for group in settings(op, kind, table) for each in group]


@pytest.fixture(scope="module")
def judges(toolchain: CpuToolchain) -> Iterator[Judge]:
    """The executor of a family."""
    made: dict[tuple[str, str], LocalExecutor] = {}

    def judge(setting: Setting) -> LocalExecutor:
        key = (setting.op, setting.table)
        if key not in made:
            made[key] = LocalExecutor(cpu_line(toolchain, family(*key)), preload=preload.CPU)
        return made[key]

    yield judge
    for executor in made.values():
        executor.close()


@pytest.mark.timed
@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("setting", all_of("wrong"), ids=str)
def test_a_mutant_is_rejected_for_the_right_reason(judges: Judge, setting: Setting) -> None:
    outcome = setting.judge(judges(setting))
    assert meets(outcome, setting.codes), outcome.fault


@pytest.mark.timed
@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("setting", all_of("right"), ids=str)
def test_a_right_implementation_passes(judges: Judge, setting: Setting) -> None:
    outcome = setting.judge(judges(setting))
    assert meets(outcome, setting.codes), outcome.fault


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("setting", [*all_of("wrong", "cuda"), *all_of("right", "cuda")], ids=str)
def test_what_is_for_cuda_compiles(setting: Setting, nvcc: CudaToolchain) -> None:
    artifact_of(build(family(setting.op, setting.table), setting.variant, setting.problem, nvcc))


def test_the_lists_are_long_enough() -> None:
    for op in folders():
        for kind in KINDS:
            wrong, right = (settings(op, kind, table) for table in ("wrong", "right"))
            assert len(wrong) >= 16  # "none" among them
            assert len(right) >= 5
            assert all(each.codes for group in wrong for each in group)


# On the host emulator -------------------------------------------------------------------------------------------------


@pytest.mark.slow
@needs.emulator
@pytest.mark.sampled(1)
@pytest.mark.parametrize("setting", [each for each in all_of("wrong", "cuda") if seen(each)], ids=str)
def test_a_mutant_breaks_the_rule_that_is_expected(setting: Setting) -> None:
    assert first_failure_of(setting) in setting.codes


@pytest.mark.slow
@needs.emulator
@pytest.mark.sampled(1)
@pytest.mark.parametrize("setting", all_of("right", "cuda"), ids=str)
def test_a_right_implementation_is_within_the_tolerances(setting: Setting) -> None:
    assert first_failure_of(setting) == "pass"


FAULTS = {"stores_whole_blocks": "outside Y", "factor_without_barrier": "differ"}
"""What the emulator says of the faults that only a GPU has."""


@pytest.mark.slow
@needs.emulator
@pytest.mark.parametrize("setting", [each for each in all_of("wrong", "cuda") if each.name in FAULTS], ids=str)
def test_a_fault_that_only_a_gpu_has_is_there(setting: Setting) -> None:
    case = Matrix(setting.problem).case((5, 67))
    with pytest.raises(EmulationError, match=FAULTS[setting.name]):
        require_same_bits(case, partial(outputs_of, setting, case))
