"""The table of studies: who serves which problem, by what finals confirmed."""

import json
import math
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

from autotuner.serve.best import export_json
from autotuner.serve.table import digest_of_table, table_of
from autotuner.store import Store, queries
from autotuner.tuning.finals import standings
from autotuner.values.errors import InputError
from autotuner.values.gate_report import CheckResult
from autotuner.values.table import TableFile
from autotuner.views.table_words import table_words
from tests.helpers.recorded import PROBLEM, artifact, hold_finals, study_record
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


def test_the_best_of_the_finals_serves_its_problem_with_its_interval(store: Store) -> None:
    tuned(store, record())
    hold_finals(store, {16: 50.0, 32: 60.0}, {16: 0, 32: 1})
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
    best = standings.best(store, "scalar-abc")
    assert best is not None
    document = json.loads(export_json(best, queries.study(store, "scalar-abc"), found))
    jsonschema.validate(document, SCHEMA)
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
    hold_finals(store, {16: 50.0, 32: 60.0}, {16: 0, 32: 1})
    with pytest.raises(InputError, match="tune again"):
        table_of(store, ["scalar-abc"])
