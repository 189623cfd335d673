"""The table of studies: who serves which problem, by what finals confirmed and what was found between tuned lengths."""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.serve.best import export_json
from autotuner.serve.table import digest_of_table, table_of, to_validate
from autotuner.store import Store, Validation, queries
from autotuner.tuning.finals import standings
from autotuner.tuning.finals.validation import lines_of, to_try, tried
from autotuner.values.errors import InputError
from autotuner.values.gate_report import CheckResult
from autotuner.values.outcome import Heat
from autotuner.values.problem import Problem
from autotuner.values.table import DispatchTable, TableFile
from autotuner.values.verdict import Fault
from autotuner.views.trial_words import table_words
from tests.helpers.recorded import PROBLEM, artifact, hold_finals, passed_gate, study_record
from tests.helpers.tables import answer
from tests.helpers.tuned_studies import SCHEMA, of_two, record, tuned

PROOF = (
    CheckResult(code="G6.many", status="pass", seconds=10.1, launches=30_000),
    CheckResult(code="G8.memory", status="pass", seconds=3.0),
)
LONG = PROBLEM.model_copy(update={"seq_q": 2048, "seq_k": 2048})


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(str(tmp_path / "studies.db")) as opened:
        yield opened


def exported(store: Store, table: DispatchTable) -> dict[str, Any]:
    """The document with the table; it is what its schema says."""
    best = standings.best(store, "scalar-abc")
    assert best is not None
    document: dict[str, Any] = json.loads(export_json(best, queries.study(store, "scalar-abc"), table))
    jsonschema.validate(document, SCHEMA)
    return document


def test_the_best_of_the_finals_serves_its_problem_with_its_interval(store: Store) -> None:
    tuned(store, record())
    hold_finals(store, {16: 50.0, 32: 60.0}, {16: 0, 32: 1}, proof=PROOF)
    found = table_of(store, ["scalar-abc"])
    (entry,) = found.entries
    assert (entry.problem, entry.use, entry.baseline, entry.loss) == (PROBLEM, artifact(16).digest, "flash", 0.0)
    assert entry.speedup.low is not None
    assert entry.speedup.low < 2.0 < (entry.speedup.high or 0.0)
    assert entry.speedup.processes == 5
    (variant,) = found.variants
    assert (variant.trial, variant.program) == (0, artifact(16).program_hash)
    assert variant.proven.passed[-1].startswith("G")
    assert not found.estimates
    document = exported(store, found)
    read = TableFile.model_validate_json(json.dumps(document))
    assert read.table == found
    assert digest_of_table(read.table) == document["table_digest"]
    assert "trial 0 of scalar-abc" in table_words(found)


def test_a_variant_that_loses_little_takes_the_place_of_two(store: Store) -> None:
    tuned(store, record(PROBLEM, LONG), (16, 32, 64))
    heats = [of_two({16: 50.0, 32: 70.0, 64: 51.0}, {16: 70.0, 32: 50.0, 64: 51.0}, process) for process in range(5)]
    tiles = {16: 0, 32: 1, 64: 2}
    hold_finals(store, {16: 60.0, 32: 60.0, 64: 51.0}, tiles, heats, proof=PROOF, proven=(16, 32, 64))
    few = table_of(store, ["scalar-abc"], loss=0.03)
    assert [entry.use for entry in few.entries] == [artifact(64).digest] * 2
    assert all(math.isclose(entry.loss, 0.02, abs_tol=0.005) for entry in few.entries)
    own = table_of(store, ["scalar-abc"], loss=0.0)
    assert [entry.use for entry in own.entries] == [artifact(16).digest, artifact(32).digest]


def test_who_has_not_been_through_the_longest_soak_serves_nothing(store: Store) -> None:
    tuned(store, record(PROBLEM, LONG))
    heats = [of_two({16: 50.0, 32: 70.0}, {16: 60.0, 32: 50.0}, process) for process in range(5)]
    hold_finals(store, {16: 55.0, 32: 60.0}, {16: 0, 32: 1}, heats, proof=PROOF, proven=(16,))
    found = table_of(store, ["scalar-abc"], loss=0.0)
    assert [entry.use for entry in found.entries] == [artifact(16).digest] * 2
    (variant,) = found.variants
    assert variant.proven.passed[-2:] == ("G6.many", "G8.memory")
    assert variant.proven.could_miss == pytest.approx(1e-4)
    assert variant.proven.memory == "passed"


def test_without_finals_only_estimates_and_only_on_request(store: Store) -> None:
    tuned(store, record())
    with pytest.raises(InputError, match="has no finals: run `autotuner finals scalar-abc`"):
        table_of(store, ["scalar-abc"])
    found = table_of(store, ["scalar-abc"], estimates=True)
    assert found.estimates
    assert found.entries[0].use == artifact(16).digest


def test_a_study_that_does_not_say_what_device_it_was_is_refused(store: Store) -> None:
    tuned(store, study_record())
    hold_finals(store, {16: 50.0, 32: 60.0}, {16: 0, 32: 1}, proof=PROOF)
    with pytest.raises(InputError, match="tune again"):
        table_of(store, ["scalar-abc"])


def test_what_is_confirmed_without_a_proof_serves_nothing(store: Store) -> None:
    tuned(store, record())
    hold_finals(store, {16: 50.0, 32: 60.0}, {16: 0, 32: 1})
    with pytest.raises(InputError, match="nothing that went through the longest soak"):
        table_of(store, ["scalar-abc"])


# Lengths between tuned ones -------------------------------------------------------------------------------------------


def at(seq_q: int, seq_k: int | None = None) -> SdpaProblem:
    return PROBLEM.model_copy(update={"seq_q": seq_q, "seq_k": seq_k or seq_q})


def heats(us: Mapping[int, float], tile: int) -> tuple[Heat, ...]:
    """Four processes of a variant that takes `us` microseconds at each length; the baseline takes 100."""

    def one(process: int) -> Heat:
        noise = 1 + 0.001 * process
        return Heat(
            entrants=(artifact(tile).digest,),
            baselines=("flash",) * len(us),
            us=(tuple((noise * each,) * 3 for each in us.values()),),
            baseline_us=((100.0,) * 3,) * len(us),
        )

    return tuple(one(process) for process in range(4))


def validated(store: Store, us: Mapping[int, float], tile: int = 16, fault: Fault | None = None) -> None:
    found = Validation(
        number={16: 0, 32: 1}[tile],
        digest=artifact(tile).digest,
        problems=tuple(at(length) for length in us),
        vary=("seq_q", "seq_k"),
        baselines=("flash",) * len(us),
        gate=passed_gate(tile),
        fault=fault,
        heats=() if fault else heats(us, tile),
    )
    store.record_validation("scalar-abc", found, {"torch": "2.11"})


def two_lengths(store: Store, first: Mapping[int, float], second: Mapping[int, float]) -> None:
    """Finals on the lengths 512 and 2048, with what each tile takes there."""
    tuned(store, record(at(512), at(2048)), tuple(first))
    found = [of_two(dict(first), dict(second), process) for process in range(5)]
    numbers = {tile: number for number, tile in enumerate(first)}
    soaked = (CheckResult(code="G6.many", status="pass", seconds=10.0, launches=30_000),)
    hold_finals(store, dict(first), numbers, found, proof=soaked, proven=tuple(first))


def uses(store: Store, *lengths: int) -> list[str | None]:
    found = table_of(store, ["scalar-abc"])
    return [answer(found, at(length))[0] for length in lengths]


@pytest.mark.parametrize(
    ("problems", "vary", "expected"),
    [
        ((at(512), at(2048)), (), [("seq_q", "seq_k")]),
        ((at(1, 512), at(1, 2048)), (), [("seq_k",)]),
        ((at(512), at(1, 512)), (), [("seq_q", "seq_k"), ("seq_q",)]),
        ((at(7, 512),), (), []),
        ((at(7, 512),), ("seq_k",), [("seq_k",)]),
    ],
)
def test_lengths_vary_together_where_they_are_equal(
    problems: tuple[Problem, ...], vary: tuple[str, ...], expected: list[tuple[str, ...]]
) -> None:
    assert [line.vary for line in lines_of(problems, vary)] == expected


@pytest.mark.parametrize("lengths", [None, (128, 4096), (512, 2048), (600, 1000)])
def test_what_is_tried_was_not_tuned_and_is_no_power_of_two(lengths: tuple[int, int] | None) -> None:
    (line,) = lines_of((at(512), at(2048)))
    found = tried(line, lengths)
    assert found
    assert not {512, 2048} & set(found)
    between = set(found) - set(lengths or ())
    assert all(each & (each - 1) for each in between)
    assert any(each % 2 for each in between)
    if lengths == (128, 4096):
        assert {128, 4096} < set(found)


def test_a_cache_that_grows_is_tried_from_its_first_key_on_without_a_word() -> None:
    (trying,) = to_try([at(1, 512), at(512)], [3, None], None, ())
    assert (trying.numbers, trying.vary) == ((3,), ("seq_k",))
    first, *others = [each.shape[2:4] for each in trying.problems]
    assert first == (1, 1)
    assert [queries for queries, _ in others] == [1, 1]
    assert [4 <= keys <= limit for (_, keys), limit in zip(others, (20, 140), strict=True)] == [True, True]
    (other,) = to_try([at(1, 512), at(512)], [3, None], None, ())
    assert other.problems != trying.problems


def test_a_range_reaches_from_a_tuned_length_to_the_next(store: Store) -> None:
    two_lengths(store, {16: 50.0}, {16: 60.0})
    (trying,) = to_validate(store, "scalar-abc")
    assert trying.numbers == (0,)
    assert uses(store, 700) == [None]
    validated(store, {701: 55.0, 1441: 58.0})
    found = table_of(store, ["scalar-abc"])
    (between,) = found.ranges
    assert (between.low[2:4], between.high[2:4]) == ((512, 512), (2048, 2048))
    assert [each.problem.shape[2] for each in between.validated] == [701, 1441]
    assert between.validated[0].speedup.mid == pytest.approx(100 / 55, rel=0.01)
    assert between.proven.passed
    assert uses(store, 513, 700, 2047, 2049, 511) == [artifact(16).digest] * 3 + [None] * 2
    assert answer(found, at(600, 700))[0] is None
    assert answer(found, at(600).model_copy(update={"batch": 3}))[0] is None
    assert "2 lengths not tuned" in table_words(found)
    exported(store, found)


def test_each_stretch_is_served_by_the_fastest_around_it(store: Store) -> None:
    two_lengths(store, {16: 50.0, 32: 80.0}, {16: 80.0, 32: 50.0})
    validated(store, {1001: 60.0, 1441: 70.0}, 16)
    validated(store, {1001: 66.0, 1441: 55.0}, 32)
    assert uses(store, 600, 1800) == [artifact(16).digest, artifact(32).digest]
    assert uses(store, 1200)[0] == artifact(32).digest
