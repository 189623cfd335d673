"""Outcomes in words: a person must be able to find the fault from them."""

import pytest

from autotuner.ops.sdpa import OP
from autotuner.store import Store
from autotuner.tuning.finals import standings
from autotuner.values.gate_report import CaseErrors, Extent, GateReport
from autotuner.values.outcome import Outcome
from autotuner.values.verdict import Fault, Verdict
from autotuner.views import trial_words
from autotuner.views.causes import meanings
from autotuner.views.trial_words import best_words
from tests.helpers.errors import errors, incorrect
from tests.helpers.recorded import hold_finals, measured, record_all, variant

MEANINGS = meanings(OP)


def outcome_words(outcome: Outcome) -> list[str]:
    return trial_words.outcome_words(outcome, OP)


def faulty(code: str, detail: str, verdict: Verdict = Verdict.CRASHED, stderr: str = "") -> Outcome:
    fault = Fault(verdict=verdict, code=code, detail=detail)
    return Outcome(variant=variant(16), verdict=verdict, fault=fault, stderr_tail=stderr)


def cause(outcome: Outcome) -> str:
    found = [line for line in outcome_words(outcome) if line.startswith("Likely cause: ")]
    return found[0] if found else ""


def test_a_numeric_reject_names_case_place_values_and_tolerances() -> None:
    text = "\n".join(outcome_words(incorrect(errors((0, 0, 500), 9 / 509))))
    assert text.startswith("incorrect: G2.T1\n")
    for words in (
        "IMPL=scalar BLOCK_M=100",
        MEANINGS["G2.T1"].asserts,
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
        (errors((1, 0, 0), 0.5), False, 64, "every slice from batch 1, head 0 on is wrong"),
        (errors((0, 0, 3), 0.1, nonfinite=5), False, 64, "exp overflowed"),
        (errors((0, 1, 17), 1 / (6 * 509)), False, 64, ""),
    ],
)
def test_a_cause_is_named_where_the_rows_point_to_one(found: CaseErrors, causal: bool, tile: int, words: str) -> None:
    said = cause(incorrect(found, causal=causal, tile=tile))
    assert words in said
    assert bool(words) == bool(said)


# Where outputs are wrong, or differ ---------------------------------------------------------------------------------


def extent(rows_of_tile: tuple[int, ...], **changes: object) -> Extent:
    """Those rows of every tile of 64 rows, in every head of a case of 2 x 3 x 509 rows."""
    usual = {
        "rows": 6 * 8 * len(rows_of_tile),
        "of_rows": 6 * 509,
        "slices": 6,
        "of_slices": 6,
        "tiles": 48,
        "tile": 64,
    }
    columns = {"tiles": 48, "tile": 64, "columns": tuple(range(64)), "of_columns": 64, "largest": 0.25}
    return Extent.model_validate({**usual, **columns, "rows_of_tile": rows_of_tile, **changes})


@pytest.mark.parametrize(
    ("found", "where", "words"),
    [
        (errors((0, 0, 16), 0.25), extent(tuple(range(16, 32))), "only rows 16 to 31 of every tile of 64 rows are"),
        (errors((0, 0, 0), 1.0), extent(tuple(range(64)), columns=(48, 49, 50, 51)), "in 4 of 64 columns, from 48 on"),
        (errors((0, 0, 0), 1.0), extent(tuple(range(64))), "every row is off, so something that they share"),
        (errors((0, 0, 16), 0.25), extent(tuple(range(64))), ""),
    ],
)
def test_what_is_out_of_tolerance_points_to_a_cause(found: CaseErrors, where: Extent, words: str) -> None:
    outcome = incorrect(found, tile=64)
    (check,) = outcome.gate.checks
    (result,) = check.cases
    placed = check.model_copy(update={"cases": (result.model_copy(update={"extent": where}),)})
    said = cause(outcome.model_copy(update={"gate": outcome.gate.model_copy(update={"checks": (placed,)})}))
    assert words in said
    assert bool(words) == bool(said)


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
        ("measure.floor", "1 us, but this device needs 2 us at least", "an answer kept from an earlier forward"),
        ("measure.clocks", "90 us by the host's clock, 10 us by the device's", "put off past the timed events"),
        ("measure.throttled", "11 blocks were void", "a power limit"),
        ("something.new", "unheard of", ""),
    ],
)
def test_a_crash_or_broken_invariant_says_why(code: str, detail: str, words: str) -> None:
    outcome = faulty(code, detail, stderr="one\n\ntwo\n")
    assert words in cause(outcome)
    assert bool(words) == bool(cause(outcome))
    assert f"Found: {detail}" in outcome_words(outcome)
    assert outcome_words(outcome)[-2:] == ["  one", "  two"]


@pytest.mark.parametrize(
    ("micros", "words"),
    [
        ({16: 50.0, 32: 55.0}, "Crowned: faster than every other finalist and the baseline"),
        ({16: 50.0, 32: 50.0}, "Tied with trial 1: of those that are as fast as the fastest it is the preferred"),
        ({16: 100.0, 32: 120.0}, "not shown to be faster than the baseline and all others by more than a tie."),
    ],
)
def test_what_the_finals_confirmed_is_told_before_the_estimate(
    store: Store, session: int, micros: dict[int, float], words: str
) -> None:
    record_all(store, session, [measured(16, 40.0), measured(32, 48.0)])
    before = standings.best(store, "scalar-abc")
    assert before is not None
    remedy, *found = best_words(before)
    assert "`autotuner finals` confirms it" in remedy
    assert found == outcome_words(before.outcome)
    hold_finals(store, micros, {16: 0, 32: 1})
    best = standings.best(store, "scalar-abc")
    assert best is not None
    first, second, third, *_ = best_words(best)
    assert first.startswith(f"Confirmed: {best.confirmed.mid:.3f} times as fast")
    assert "5 processes x 40 blocks" in first
    assert words in second
    assert third.startswith("Search estimate, biased: measured: 2.500 times as fast")
    assert f"{best.entry.difference:+.1%} off" in third


def test_what_the_sanitizers_found_of_a_rejected_variant_stands_beside_its_fault() -> None:
    fault = Fault(verdict=Verdict.CRASHED, code="process.signal", detail="signal 11 (SIGSEGV) in G1.smoke")
    states = (("G1.smoke", "fail", None), ("G8.memory", "fail", "heap-buffer-overflow, in variant_run at rows.cpp:7"))
    checks = [{"code": code, "status": status, "seconds": 0.1, "note": note} for code, status, note in states]
    gate = GateReport.model_validate({"artifact": "a", "required": (), "checks": checks, "fault": fault})
    words = outcome_words(Outcome(variant=variant(16), verdict=Verdict.CRASHED, gate=gate, fault=fault))
    assert words[0] == "crashed: process.signal"
    assert "G8.memory: heap-buffer-overflow, in variant_run at rows.cpp:7" in words
    assert not any("gate --sanitize" in line for line in words)
