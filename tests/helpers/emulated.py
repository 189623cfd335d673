"""The CUDA mutants and right implementations on the host emulator, through the gate's numeric levels."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import cast

import torch

from autotuner.devices.environment import usable_cpus
from autotuner.gate.cases import Case, Matrix
from autotuner.gate.tolerance import judge, truth
from autotuner.ops import op_of
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.ops.tensors import Tensors, all_same_bits
from autotuner.values.problem import Problem
from tests.emulator.emulator import EmulationError, emulate, emulate_rows
from tests.mutants.expectations import MUTANTS, SEEDS, Expectation
from tests.mutants.of_ops import Setting

SOURCES = {"numeric": "mutants.cu", "right": "right.cu", "systemic": "systemic.cu"}
TILES = {"numeric": (64, 64), "right": (32, 64)}
NUMERIC = ("G1.unwritten", "G2", "G5", "pass")
"""What is compared with a reference. The invariants of G3 are left to a device."""


Launch = Callable[[Case, Tensors], Tensors]
"""The outputs of one emulated launch on a case's inputs."""


def seen(expectation: Expectation | Setting) -> bool:
    """True where a case finds it, and no invariant has to."""
    return any(code.startswith(NUMERIC) for code in expectation.codes)


def outputs(expectation: Expectation, case: Case, inputs: Tensors, seed: int = 0) -> Tensors:
    """The outputs of one emulated launch."""
    source = MUTANTS / expectation.table / SOURCES[expectation.table]
    return emulate(source, expectation.variant.parameters, cast(SdpaProblem, case.problem), inputs, seed)


def outputs_of(setting: Setting, case: Case, inputs: Tensors, seed: int = 0) -> Tensors:
    """The same of an op with two inputs and one output."""
    x, w = inputs
    return (emulate_rows(setting.source, setting.variant.parameters, case.problem, x, w, seed),)


def require_same_bits(case: Case, launch: Callable[[Tensors, int], Tensors]) -> None:
    """Raises EmulationError when a launch, of inputs and a schedule, breaks a rule, or another schedule gives other
    bits."""
    inputs = truth(case, SEEDS[0]).inputs
    first = launch(inputs, 0)
    if not all(all_same_bits(first, launch(inputs, seed)) for seed in range(1, 6)):
        raise EmulationError("two schedules differ")


def first_failure(expectation: Expectation) -> str:
    """The code of the first numeric level that fails; "pass" when none does."""
    return _first_failure(expectation.problem, TILES[expectation.table], partial(outputs, expectation))


def first_failure_of(setting: Setting) -> str:
    """The same of another op."""
    tile = op_of(setting.problem).cases.tile(setting.variant.parameters, {})
    return _first_failure(setting.problem, tile, partial(outputs_of, setting))


def cases(matrix: Matrix, tile: tuple[int, ...]) -> Iterator[tuple[str, Case, int]]:
    """The cases of G2 and G5 in the gate's order: level, case and the secret seed's number."""
    for index, case in enumerate(matrix.quick()):
        yield "G2", case, index
    for index, case in enumerate(matrix.quick()):
        yield "G5", case, index + 1
    for index, case in enumerate(matrix.full(tile)):
        yield "G5", case, index
        yield "G5", case, index + 2


def _first_failure(problem: Problem, tile: tuple[int, ...], launch: Launch) -> str:
    matrix = Matrix(problem)
    smoke = matrix.case(matrix.op.cases.smoke)
    if any(not torch.isfinite(each).all() for each in launch(smoke, truth(smoke, SEEDS[0]).inputs)):
        return "G1.unwritten"

    def failed(wanted: tuple[str, Case, int]) -> str | None:
        level, case, index = wanted
        expected = truth(case, SEEDS[index % 4])
        pairs = zip(launch(case, expected.inputs), expected.outputs, strict=True)
        rules = (judge(*pair).failed_rule for pair in pairs)
        return next((f"{level}.{rule}" for rule in rules if rule), None)

    with ExitStack() as stack:  # a launch is a process of its own, so that several run side by side
        pool = ThreadPoolExecutor(usable_cpus())
        stack.callback(pool.shutdown, cancel_futures=True)
        return next((code for code in pool.map(failed, cases(matrix, tile)) if code), "pass")
