"""Implementations that serve some lengths only: judged on those, and on refusing the others."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from autotuner.devices.cpu import device
from autotuner.devices.cpu.toolchain import CpuToolchain
from autotuner.forge.family import Claims, Family
from autotuner.gate.cases import Case, Matrix
from autotuner.gate.tolerance import Truth, truth
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.run.line import Passed
from autotuner.run.local import LocalExecutor
from autotuner.values.errors import KernelError
from autotuner.values.outcome import Outcome
from autotuner.values.variant import Variant
from autotuner.values.verdict import Verdict
from tests.helpers.judging import KERNELS, artifact_of, briefly, cpu_judge, cpu_line, judged
from tests.helpers.recorded import REQUIRED
from tests.mutants.expectations import SEEDS

PROBLEM = SdpaProblem(batch=1, heads=2, seq_q=64, seq_k=64, head_dim=64, dtype="float32")
CONDITIONS = briefly(PROBLEM, SEEDS)
GROUP = 16


@pytest.fixture(scope="module")
def kernel() -> Family:
    return Family.load(KERNELS / "sixteens")


@pytest.fixture(scope="module")
def executor(toolchain: CpuToolchain, kernel: Family) -> Iterator[LocalExecutor]:
    with cpu_judge(toolchain, kernel) as made:
        yield made


def variant(others: str) -> Variant:
    return Variant(family="sixteens", backend="cpu", impl="rows", parameters={"GROUP": GROUP, "OTHERS": others})


def judge(executor: LocalExecutor, others: str) -> Outcome:
    return judged(executor, variant(others), CONDITIONS, soak="never")


def rows_of(case: str) -> int:
    """The query rows of a case, from its name: batch x heads x rows x keys."""
    shape = next(word for word in case.split() if word.count("x") == 3)
    return int(shape.split("x")[2])


@pytest.mark.slow
def test_what_serves_a_single_query_is_not_accused_of_taking_rows_that_are_dense(executor: LocalExecutor) -> None:
    """Of a single row the stride from row to row says nothing, so there are no unfit ones."""
    one = PROBLEM.model_copy(update={"seq_q": 1})
    single = Variant(family="sixteens", backend="cpu", impl="single", parameters={})
    outcome = judged(executor, single, CONDITIONS.model_copy(update={"problems": (one,)}), soak="never")
    assert outcome.verdict.has_latency, outcome.fault
    assert "G3.misaligned" in {check.code for check in outcome.gate.checks if check.status == "pass"}


def test_an_answer_outside_the_domain_is_a_rejection(executor: LocalExecutor) -> None:
    outcome = judge(executor, "answered")
    assert (outcome.fault.code, outcome.verdict) == ("G3.domain", Verdict.INCORRECT)
    assert "outside what the variant serves" in outcome.fault.detail
    assert outcome.measurement is None


@pytest.mark.parametrize(
    ("others", "code"),
    [
        ("refused_with_a_write_before_o", "G1.guard"),
        pytest.param("refused_with_a_changed_q", "G1.inputs", marks=pytest.mark.slow),
    ],
)
def test_a_refusal_that_writes_where_it_must_not_is_a_rejection(
    executor: LocalExecutor, others: str, code: str
) -> None:
    outcome = judge(executor, others)
    assert (outcome.fault.code, outcome.verdict) == (code, Verdict.CORRUPTING)
    assert outcome.fault.case.startswith("outside the domain")


# The matrix ---------------------------------------------------------------------------------------------------------


def claims(domain: str, **parameters: int) -> Claims:
    return Claims(domain=domain, parameters={"IMPL": "rows", **parameters})


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "domain",
    [
        "SEQ_Q % BLOCK_M == 0",
        "SEQ_Q == SEQ_K and SEQ_K >= 2 * BLOCK_M",
        "SEQ_K % BLOCK_M == 0 if CAUSAL else SEQ_Q < 100",
    ],
)
def test_every_case_is_inside_the_domain_and_every_refusal_outside(domain: str, causal: bool) -> None:
    promised = claims(domain, BLOCK_M=48)
    matrix = Matrix(PROBLEM.model_copy(update={"causal": causal}), claims=promised)
    full = matrix.full((48, 32))
    cases = (*matrix.quick(), *full, matrix.case((2, 3, 113, 203)))
    assert [case.name for case in cases if not promised.serve(case.problem)] == []
    assert len({(case.problem, case.distribution) for case in full}) == len(full)
    assert matrix.bounded
    assert 1 <= len(matrix.outside()) <= 4
    assert [problem for problem in matrix.outside() if promised.serve(problem)] == []


# kernel.toml --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("domain", "message"),
    [
        ("SEQ_Q %", r"cpu\.rows\.domain: "),
        ("SEQ_Q % STEP == 0", r"cpu\.rows\.domain: STEP is no parameter of it; known: .*GROUP.*SEQ_K"),
        ("BATCH == 1", r"cpu\.rows\.domain: BATCH is no parameter of it"),
    ],
)
def test_a_domain_that_cannot_be_read_is_told_in_one_line(
    kernel: Family, tmp_path: Path, domain: str, message: str
) -> None:
    text = (kernel.folder / "kernel.toml").read_text().replace("SEQ_Q % GROUP == 0", domain)
    (tmp_path / "kernel.toml").write_text(text)
    (tmp_path / "sixteens.cpp").touch()
    with pytest.raises(KernelError, match=message) as raised:
        Family.load(tmp_path)
    assert str(raised.value).startswith(f"{tmp_path}/kernel.toml: ")
    assert "\n" not in str(raised.value)


@pytest.mark.slow
def test_what_refuses_all_but_its_own_lengths_passes_and_is_judged_by_what_is_known_before(
    toolchain: CpuToolchain, kernel: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is drawn up before the cage, where nothing can be kept: the rest would be computed for each variant anew."""
    asked: set[tuple[Case, int]] = set()

    def noted(case: Case, seed: int) -> Truth:
        asked.add((case, seed))
        return truth(case, seed)

    cpus, threads = os.sched_getaffinity(0), torch.get_num_threads()
    monkeypatch.setattr(device, "truth", noted)
    line = cpu_line(toolchain, kernel)()
    artifact = artifact_of(line.build(variant("refused"), CONDITIONS))
    known = line.references(CONDITIONS, artifact)
    report = line.check(artifact, CONDITIONS, lambda _: None)
    assert report.passed, report.fault
    assert {check.code for check in report.checks if check.status == "pass"} >= {*REQUIRED, "G3.domain"}
    cases = [result.case for check in report.checks for result in check.cases]
    assert len(cases) > 30
    assert [case for case in cases if rows_of(case) % GROUP] == []
    assert line.check(artifact, CONDITIONS, lambda _: None, Passed(report, "soak")).passed
    line.tracks(CONDITIONS)
    os.sched_setaffinity(0, cpus)
    torch.set_num_threads(threads)
    assert len(asked) > 30
    assert asked <= {*known}
