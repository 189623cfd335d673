"""G6.many: what is wrong once in thousands of launches passes the search and is found in the variant to use."""

import os
from collections.abc import Iterator

import pytest
import torch

from autotuner.devices.cpu.toolchain import CpuToolchain
from autotuner.forge.family import Family
from autotuner.run.jobs import BuildJob, Built, JudgeJob
from autotuner.run.line import GatedLine, Passed
from autotuner.run.local import LocalExecutor
from autotuner.values.outcome import Outcome
from autotuner.values.variant import Variant
from autotuner.values.verdict import Verdict
from tests.helpers.judging import KERNELS, PROBLEM, briefly, cpu_judge, cpu_line, result

CONDITIONS = briefly(PROBLEM)


@pytest.fixture(scope="module")
def judge(toolchain: CpuToolchain) -> Iterator[LocalExecutor]:
    with cpu_judge(toolchain, Family.load(KERNELS / "rare")) as made:
        yield made


def built(judge: LocalExecutor, every: int) -> Built:
    variant = Variant(family="rare", backend="cpu", impl="counts", parameters={"EVERY": every, "WHEN": "counted"})
    made = result(judge, BuildJob(variant=variant, conditions=CONDITIONS))
    assert isinstance(made, Built), made
    return made


def judged(judge: LocalExecutor, job: JudgeJob) -> Outcome:
    outcome = result(judge, job)
    assert isinstance(outcome, Outcome), outcome
    return outcome


@pytest.fixture
def here(toolchain: CpuToolchain) -> Iterator[GatedLine]:
    """A line in this very process, whose CPUs are given back."""
    cpus, threads = os.sched_getaffinity(0), torch.get_num_threads()
    yield cpu_line(toolchain, Family.load(KERNELS / "rare"))()
    os.sched_setaffinity(0, cpus)
    torch.set_num_threads(threads)


@pytest.mark.slow
def test_what_is_wrong_once_in_5000_launches_passes_gate_and_soak_and_is_found_by_many(
    judge: LocalExecutor, here: GatedLine
) -> None:
    artifact = built(judge, 5000).artifact
    passed = here.check(artifact, CONDITIONS, lambda _: None)
    assert passed.passed, passed.fault
    soaked = here.check(artifact, CONDITIONS, lambda _: None, Passed(passed, "soak"))
    assert soaked.passed, soaked.fault
    before = sum(check.launches for check in soaked.checks)
    found = here.check(artifact, CONDITIONS, lambda _: None, Passed(soaked, "many", 30.0))
    assert (found.fault.verdict, found.fault.code) == (Verdict.NONDETERMINISTIC, "G6.many")
    assert "differs from the first on the same input" in found.fault.detail
    assert found.checks[-1].launches <= 5000 - before + 10  # at the very launch; what ran in between counts, too


@pytest.mark.slow
@pytest.mark.sampled(1, of="all checks of the one to use")
def test_a_right_variant_passes_and_its_launches_are_counted(judge: LocalExecutor) -> None:
    outcome = judged(judge, JudgeJob(built=built(judge, 0), conditions=CONDITIONS, soak="chosen", many_s=1, fresh=True))
    assert outcome.verdict == Verdict.MEASURED, outcome.fault
    many, memory = outcome.gate.checks[-2:]
    assert (many.code, many.status, memory.code) == ("G6.many", "pass", "G8.memory")
    assert memory.status in ("pass", "unavailable")
    assert (memory.note is None) == (memory.status == "pass")
    assert many.launches > 1
    assert many.note == f"launches: {many.launches} on {PROBLEM}"
    assert many.seconds >= 1
