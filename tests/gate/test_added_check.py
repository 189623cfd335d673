"""A check that another package adds: one object, and the line does it after the gate's own."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from autotuner.devices.cpu.toolchain import CpuToolchain
from autotuner.forge.family import Family
from autotuner.gate.check import Check, Failed, Subject
from autotuner.gate.launching import Launching
from autotuner.run.local import LocalExecutor
from autotuner.values.verdict import Verdict
from tests.helpers import preload
from tests.helpers.judging import cpu_line
from tests.mutants.expectations import MUTANTS, Expectation

LARGEST = 1e-3


def _stays_small(launching: Launching) -> str:
    """Of inputs near zero the output is near zero: what a user's model may rely on."""
    case = launching.matrix.case(launching.op.cases.smoke)
    inputs = tuple(1e-6 * tensor for tensor in launching.inputs(case))
    largest = max(float(output.abs().max()) for output in launching.launch(case, inputs))
    if largest > LARGEST:
        raise Failed(f"an output of {largest:g}", case)
    return f"at most {largest:g}"


def _refuses(launching: Launching) -> None:
    raise Failed("nothing is good enough for it")


def _has_streams(subject: Subject) -> bool:
    return subject.streams


SMALL = Check("X1.small", "inputs near zero give outputs near zero", _stays_small)
NEVER = Check("X2.never", "what nobody can do", _refuses, verdict=Verdict.IMPOSSIBLE)
ELSEWHERE = Check("X3.elsewhere", "what holds on streams", _refuses, applies=_has_streams)


@pytest.fixture(scope="module")
def family() -> Family:
    return Family.load(MUTANTS / "numeric")


def judge(toolchain: CpuToolchain, family: Family, *more: Check) -> Iterator[str | None]:
    """The code of the fault of the right implementation, and then each code of a passed check."""
    factory = replace(cpu_line(toolchain, family), more=more)
    executor = LocalExecutor(factory, preload=preload.CPU)
    try:
        outcome = Expectation("cpu", "numeric", "none", "float32", False, 64, ("pass",)).judge(executor)
    finally:
        executor.close()
    yield outcome.fault.code if outcome.fault is not None else None
    assert set(outcome.gate.required) >= {check.code for check in more if check is not ELSEWHERE}
    assert outcome.measurement is None or outcome.gate.passed
    yield from (check.code for check in outcome.gate.checks if check.status == "pass")


def test_a_check_of_another_package_is_done_and_required(toolchain: CpuToolchain, family: Family) -> None:
    fault, *passed = judge(toolchain, family, SMALL, ELSEWHERE)
    assert fault is None
    assert "X1.small" in passed
    assert passed.index("X1.small") > passed.index("G5.matrix")


def test_what_fails_it_has_no_latency(toolchain: CpuToolchain, family: Family) -> None:
    fault, *passed = judge(toolchain, family, SMALL, NEVER)
    assert fault == "X2.never"
    assert passed[-1] == "X1.small"
