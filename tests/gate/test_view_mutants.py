"""The gate against mutants of strides, groups, lengths, corners, log-sum-exps and merges, on the CPU and, as far as a
case shows them, on the emulator; against those of Triton on a GPU; and those of IMPL = wgmma, of which each edit still
fits the sources and the emulator sees what it can see. benchmarks/gate/view_mutants.py judges all of them."""

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest

from autotuner.devices.cpu.toolchain import CpuToolchain
from autotuner.devices.cuda import triton
from autotuner.devices.cuda.toolchain import CudaToolchain
from autotuner.gate.cases import Case, Matrix
from autotuner.gate.tolerance import judge, truth
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.ops.tensors import Tensors, all_same_bits
from autotuner.run.local import LocalExecutor
from tests.emulator.emulator import EmulationError, emulate, judged as errors_of
from tests.helpers import needs, preload
from tests.helpers.judging import cpu_judge, cuda_line, judged
from tests.mutants.expectations import MUTANTS, SEEDS, meets
from tests.mutants.views import VIEWS, View, conditions, family, mutants
from tests.mutants.warpgroups import Mutant, mutants as warpgroups

LATER = ("G5", "G3.lengths", "G3.spread")
"""How codes begin of what no quick case shows."""
FAST = "group_modulo"


def marked(view: View) -> object:
    """One is fast; of the others a sample runs."""
    marks = [] if view.name == FAST else [pytest.mark.slow, pytest.mark.sampled(1, "views")]
    return pytest.param(view, id=view.name, marks=marks)


@pytest.fixture(scope="module")
def executor(toolchain: CpuToolchain) -> Iterator[LocalExecutor]:
    with cpu_judge(toolchain, family()) as made:
        yield made


@pytest.mark.timed
@pytest.mark.parametrize("view", [marked(view) for view in VIEWS])
def test_a_mutant_of_views_is_rejected_for_the_right_reason(executor: LocalExecutor, view: View) -> None:
    outcome = judged(executor, view.variant("cpu"), conditions(view, "cpu"), soak="never")
    assert meets(outcome, view.codes), outcome.fault


def emulated(
    source: Path, view: View, problem: SdpaProblem, inputs: Tensors, far: tuple[int, int] | None
) -> Tensors | None:
    """The outputs of one emulated launch; None where the emulator stopped it."""
    try:
        return emulate(source, {"MUTANT": view.name}, problem, inputs, 0, far)
    except EmulationError:
        return None


def test_there_are_enough_and_each_is_in_the_source() -> None:
    source = (MUTANTS / "views" / "views_row.h").read_text()
    assert len(VIEWS) > 25
    wrong = [view.name for view in VIEWS if view.codes != ("pass",)]
    assert [name for name in wrong if f"MUTANT_{name.upper()}" not in source] == []


@needs.emulator
@pytest.mark.slow
@pytest.mark.sampled(2, "emulated_views")
@pytest.mark.parametrize("view", [view for view in VIEWS if not view.codes[0].startswith(LATER)], ids=str)
def test_a_mutant_of_views_for_cuda_is_seen_by_a_quick_case(view: View) -> None:
    source, like = MUTANTS / "views" / "views.cu", conditions(view, "cuda").problems[0]

    def wrong(problem: SdpaProblem, distribution: str) -> bool:
        case = Matrix(like).case(problem.short_shape, distribution)
        right = truth(case, SEEDS[0])
        try:
            found = emulate(source, {"MUTANT": view.name}, cast(SdpaProblem, case.problem), right.inputs, 0)
        except EmulationError:
            return True
        return any(judge(*pair).failed_rule for pair in zip(found, right.outputs, strict=True))

    if "G3.far" in view.codes:
        case = Matrix(like).case((2, 2, 9, 21))
        given, problem = truth(case, SEEDS[0]).inputs, cast(SdpaProblem, case.problem)
        places = [None, *((number, dim) for number in range(4) for dim in range(3))]
        found = [emulated(source, view, problem, given, far) for far in places]
        assert any(other is None or not all_same_bits(other, found[0] or ()) for other in found[1:])
        return
    quick = Matrix(like).quick()
    if view.name == "counter_not_restored":  # only the second launch shows it
        pytest.skip("one launch does not show it")
    seen = (wrong(cast(SdpaProblem, case.problem), case.distribution) for case in reversed(quick))
    assert any(seen) == (view.codes != ("pass",))


# Kernels of Triton ----------------------------------------------------------------------------------------------------


OF_TRITON = mutants("triton")


@pytest.fixture(scope="module")
def judges_triton(device: CudaToolchain) -> Iterator[LocalExecutor]:
    with closing(LocalExecutor(cuda_line(device, family("triton")), preload.CUDA)) as executor:
        yield executor


def test_each_has_its_expectation() -> None:
    ((_, implementation),) = family("triton").document.devices["cuda"].items()
    assert {each.name for each in OF_TRITON} == {*implementation.parameters["MUTANT"]}
    assert sum(each.codes != ("pass",) for each in OF_TRITON) > 25


@pytest.mark.gpu
@pytest.mark.skipif(not triton.is_usable(), reason="no Triton")
@pytest.mark.parametrize("mutant", OF_TRITON, ids=str)
def test_a_wrong_kernel_is_rejected_and_the_right_one_passes(judges_triton: LocalExecutor, mutant: View) -> None:
    outcome = judged(judges_triton, mutant.variant("cuda"), conditions(mutant, "cuda"), soak="never")
    assert meets(outcome, mutant.codes), outcome.fault


# Products of warpgroups -----------------------------------------------------------------------------------------------


SCHEDULES = 6


def seen(mutant: Mutant, folder: Path) -> str:
    """What the emulator says of it: its complaint, "tolerance" or "pass"."""
    on = mutant.problem.problem()
    case = Case(name=str(on), problem=on, distribution=mutant.problem.distribution)
    try:
        errors = errors_of(mutant.write(folder) / "wgmma.cu", mutant.parameters, case, SCHEDULES)
    except EmulationError as error:
        return str(error)
    return "pass" if errors.failed_rule is None else "tolerance"


def test_there_are_enough_mutants_of_warpgroups_and_each_fits_the_sources(tmp_path: Path) -> None:
    found = warpgroups()
    assert len(found) >= 20
    assert len({mutant.name for mutant in found}) == len(found)
    for mutant in found:
        mutant.write(tmp_path)
        assert (mutant.emulator is None) == (mutant.why is not None), mutant.name


@pytest.mark.slow
@pytest.mark.sampled(2)
@needs.emulator
@pytest.mark.parametrize(
    "mutant", [each for each in warpgroups() if each.emulator is not None], ids=lambda each: each.name
)
def test_the_emulator_sees_a_mutant_of_warpgroups(mutant: Mutant, tmp_path: Path) -> None:
    assert mutant.emulator is not None
    said = seen(mutant, tmp_path)
    assert re.search(mutant.emulator, said), f"{mutant.what}: {said}"
