"""A variant that is honest where it is judged and answers from a memo where it is only timed: built and run."""

from collections.abc import Iterator
from statistics import median
from typing import Literal

import pytest

from autotuner.devices.cpu.toolchain import CpuToolchain
from autotuner.forge.family import Family
from autotuner.race.tie import logs
from autotuner.run.jobs import BuildJob, Built, JudgeJob, RaceJob, Result
from autotuner.run.local import LocalExecutor
from autotuner.values.conditions import Conditions
from autotuner.values.outcome import Heat, Outcome
from autotuner.values.variant import Variant
from autotuner.values.verdict import Fault
from tests.helpers.judging import cpu_judge, result
from tests.mutants.expectations import MUTANTS, SEEDS, Expectation

pytestmark = pytest.mark.timed

PROBLEM = Expectation("cpu", "clock", "none", "float32", False, 64, (), audited=True).problem
CONDITIONS = Conditions(
    problems=(PROBLEM,), cache="warm", seeds=SEEDS, baselines=("flash",), min_blocks=6, max_blocks=6
)
VARIANT = Variant(family="unlike", backend="cpu", impl="mutant", parameters={"MUTANT": "none"})


@pytest.fixture(scope="module")
def executor(toolchain: CpuToolchain) -> Iterator[LocalExecutor]:
    with cpu_judge(toolchain, Family.load(MUTANTS / "unlike")) as made:
        yield made


@pytest.mark.slow
def test_a_heat_that_begins_with_the_gate_is_as_honest_as_the_search(executor: LocalExecutor) -> None:
    built = result(executor, BuildJob(variant=VARIANT, conditions=CONDITIONS))
    assert isinstance(built, Built)
    searched = result(executor, JudgeJob(built=built, conditions=CONDITIONS, soak="never", fresh=True))
    assert isinstance(searched, Outcome)
    assert searched.measurement is not None, searched.fault
    honest = searched.measurement.objective

    def heat(judged: Literal["before", "after"] | None) -> Result:
        artifacts = (built.artifact,)
        return result(
            executor, RaceJob(artifacts=artifacts, conditions=CONDITIONS, blocks=8, judged=judged, fresh=True)
        )

    only_timed = heat(None)
    assert isinstance(only_timed, Heat)
    assert median(logs(only_timed, 0)[0]) < honest - 1, "the attack works where nobody looks"
    found = heat("before")
    assert isinstance(found, Fault | Heat)
    assert isinstance(found, Fault) or 0 in found.faults or abs(median(logs(found, 0)[0]) - honest) < 0.5
    found = heat("after")
    assert isinstance(found, Fault) or 0 in getattr(found, "faults", {})
