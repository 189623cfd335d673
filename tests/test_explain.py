"""Outcomes in words: a person must be able to find the fault from them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import autotuner
from autotuner.explain import explain
from autotuner.meanings import MEANINGS
from autotuner.outcome import Outcome
from autotuner.report import REQUIRED_CHECKS, CaseErrors, CaseResult, CheckResult, GateReport
from autotuner.verdict import Fault, Verdict
from tests.recorded import artifact, deduplicated, measured, raced_out, rejected, variant


def errors(first_bad_row: tuple[int, int, int] | None, bad_rows: float, nonfinite: int = 0) -> CaseErrors:
    return CaseErrors(
        nonfinite=nonfinite,
        max_abs=0.5,
        max_abs_tol=1e-3,
        row_rel=0.8,
        row_rel_tol=1e-3,
        head_rel=0.1,
        head_rel_tol=1e-4,
        bias=0.0,
        worst_index=(1, 2, 508, 7),
        worst_value=0.125,
        worst_reference=0.625,
        first_bad_row=first_bad_row,
        bad_rows=bad_rows,
    )


def incorrect(
    found: CaseErrors, *, causal: bool = False, tile: int = 100, case: str = "Q3 2x3x509x509 randn"
) -> Outcome:
    fault = Fault(verdict=Verdict.INCORRECT, code=f"G2.{found.failed_rule}", detail="see the errors", case=case)
    check = CheckResult(
        code="G2.quick", status="fail", seconds=0.1, cases=(CaseResult(case=case, seed_index=0, errors=found),)
    )
    built = artifact(tile).model_copy(update={"causal": causal})
    gate = GateReport(artifact=built.digest, checks=(check,), fault=fault)
    return Outcome(variant=variant(tile), verdict=Verdict.INCORRECT, artifact=built, gate=gate, fault=fault)


def faulty(code: str, detail: str, verdict: Verdict = Verdict.CRASHED, stderr: str = "") -> Outcome:
    fault = Fault(verdict=verdict, code=code, detail=detail)
    return Outcome(variant=variant(16), verdict=verdict, fault=fault, stderr_tail=stderr)


def cause(outcome: Outcome) -> str:
    found = [line for line in explain(outcome) if line.startswith("Likely cause: ")]
    return found[0] if found else ""


def test_a_numeric_reject_names_case_place_values_and_tolerances() -> None:
    text = "\n".join(explain(incorrect(errors((0, 0, 500), 9 / 509))))
    assert text.startswith("incorrect: G2.T1\n")
    for words in (
        "IMPL=scalar BLOCK_M=100",
        MEANINGS["G2.T1"],
        "batch 2, heads 3, 509 query rows, 509 keys, head_dim 64, float32, no mask",
        "randn: standard normal",
        "First bad row: batch 0, head 0, row 500; 1.8% of rows",
        "Worst element: batch 1, head 2, row 508, column 7: 0.125 where the reference has 0.625",
        "(T1): 0.5, tolerance 0.001 (500 times)",
    ):
        assert words in text


@pytest.mark.parametrize(
    ("found", "causal", "tile", "words"),
    [
        (errors((0, 0, 500), 9 / 509), False, 100, "9 rows after the last whole tile of BLOCK_M=100"),
        (errors((0, 0, 500), 9 / 509), False, 64, "only the last 9 of 509 rows"),
        (errors((0, 0, 101), 408 / 509), True, 64, "every row from 101 on is wrong and none before"),
        (errors((0, 0, 0), 1.0), False, 64, "every row is off"),
        (errors((1, 0, 0), 0.5), False, 64, "every head from batch 1, head 0 on is wrong"),
        (errors((0, 0, 3), 0.1, nonfinite=5), False, 64, "exp overflowed"),
        (errors((0, 1, 17), 1 / (6 * 509)), False, 64, ""),
    ],
)
def test_a_cause_is_named_where_the_rows_point_to_one(found: CaseErrors, causal: bool, tile: int, words: str) -> None:
    said = cause(incorrect(found, causal=causal, tile=tile))
    assert words in said
    assert bool(words) == bool(said)


def test_the_failing_case_is_the_one_that_broke() -> None:
    good = errors(None, 0.0).model_copy(update={"max_abs": 0.0, "row_rel": 0.0, "head_rel": 0.0})
    outcome = incorrect(errors((0, 0, 0), 1.0))
    assert outcome.gate is not None
    (check,) = outcome.gate.checks
    cases = (CaseResult(case="Q1 2x2x200x200 big_v", seed_index=0, errors=good), *check.cases)
    gate = outcome.gate.model_copy(update={"checks": (check.model_copy(update={"cases": cases}),)})
    assert explain(outcome.model_copy(update={"gate": gate})) == explain(outcome)


@pytest.mark.parametrize(
    ("code", "detail", "words"),
    [
        ("process.signal", "signal 11 (SIGSEGV) in G3.repeat", "past a tensor's end"),
        ("process.signal", "signal 4 (SIGILL) in G1.smoke", "instruction"),
        ("process.signal", "signal 64 (64) in G1.smoke", ""),
        ("process.deadline", "no answer for 30 s", "endless loop"),
        ("G3.repeat", "launch 3 differs", "race"),
        ("G6.soak", "launch 130 differs", "race"),
        ("G1.guard", "4 bytes past the end of O", "bounds check"),
        ("something.new", "unheard of", ""),
    ],
)
def test_a_crash_or_broken_invariant_says_why(code: str, detail: str, words: str) -> None:
    outcome = faulty(code, detail, stderr="one\n\ntwo\n")
    assert words in cause(outcome)
    assert bool(words) == bool(cause(outcome))
    assert f"Found: {detail}" in explain(outcome)
    assert explain(outcome)[-2:] == ["  one", "  two"]


def test_a_fault_of_ours_is_not_blamed_on_the_variant() -> None:
    text = "\n".join(explain(rejected(16, Verdict.INFRA_ERROR, "worker.lost")))
    assert "says nothing about the variant" in text


def test_an_achievement_is_told_with_its_interval_and_its_gate() -> None:
    text = "\n".join(explain(measured(16, 50.0)))
    assert "2.000 times as fast" in text
    assert "50.00 us a forward against 100.00 us of flash" in text
    assert "95% interval 1.960 to 2.040, 3 blocks" in text
    assert f"Gate: {len(REQUIRED_CHECKS)} checks passed, 0 outputs compared" in text
    assert "estimates" in "\n".join(explain(raced_out(16, 300.0)))
    original = measured(16, 50.0)
    assert original.artifact is not None
    assert original.artifact.digest[:12] in "\n".join(explain(deduplicated(32, original)))


def test_an_outcome_without_a_fault_still_reads() -> None:
    bare = Outcome(variant=variant(16), verdict=Verdict.BUILD_FAILED)
    assert explain(bare) == ["build_failed", "Variant: IMPL=scalar BLOCK_M=16"]


CODE = re.compile(r'"((?:G\d|gate|build|measure|process|store)\.[a-z_0-9]+)"')
FINER = {"G1.smoke", "G2.quick", "G5.matrix"}
"""Checks whose faults have codes of their own, such as G1.unwritten and G2.T1."""

OURS = {"gate.incomplete", "process.lost"}
"""They say nothing about the variant."""


def codes_in_the_package() -> set[str]:
    """Every code that the package gives a fault, besides those of the rules T0 to T3."""
    package = Path(autotuner.__file__).parent
    sources = [path for path in package.rglob("*.py") if path.name not in ("explain.py", "ninja_file.py")]
    found = {code for path in sources for code in CODE.findall(path.read_text())}
    return found - FINER - OURS - {"build.ninja"}


def test_every_stable_code_has_a_meaning() -> None:
    rules = {f"{level}.T{rule}" for level in ("G2", "G5") for rule in range(4)}
    assert set(MEANINGS) == codes_in_the_package() | rules
    assert all("\n" not in meaning and not meaning.endswith(".") for meaning in MEANINGS.values())
