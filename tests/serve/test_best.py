"""best.json: it holds the proof, it is strict JSON."""

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from autotuner.serve.best import CONFIRMED_NOTE, BestConfiguration, configuration, export_json
from autotuner.store import Store
from autotuner.tuning.finals import standings
from autotuner.tuning.finals.standings import Best
from autotuner.values.errors import InputError
from autotuner.values.gate_report import CheckResult, GateReport
from autotuner.values.outcome import Outcome
from autotuner.values.ratio import BIASED
from tests.helpers.recorded import CALIBRATION, artifact, hold_finals, measured, study_record, variant, with_error


def with_errors(outcome: Outcome, max_abs: float, tolerance: float) -> Outcome:
    found = with_error(outcome, max_abs, tolerance)
    unavailable = CheckResult(code="G8.sanitizer", status="unavailable", seconds=0.0)
    return found.model_copy(update={"gate": found.gate.extended((unavailable,), None)})


def best_of(folder: Path, outcome: Outcome) -> Best:
    with Store.open(str(folder / "studies.db")) as store:
        store.ensure_study(study_record())
        session = store.start_session("scalar-abc", CALIBRATION, {"torch": "2.11", "governor": "performance"})
        store.record("scalar-abc", session, 3, outcome)
        best = standings.best(store, "scalar-abc")
    assert best is not None
    return best


@pytest.fixture
def best(tmp_path: Path) -> Best:
    return best_of(tmp_path, with_errors(measured(16, 50.0), 0.25, 1.0))


def test_the_document_holds_the_proof(best: Best) -> None:
    found = BestConfiguration.model_validate_json(export_json(best, study_record()))
    assert (found.schema_version, found.study, found.trial, found.note) == (3, "scalar-abc", 3, BIASED)
    assert found.parameters == {"IMPL": "scalar", "BLOCK_M": 16}
    assert found.problems[0].flops == 4 * 8 * 512 * 512 * 64
    assert found.device.name == "A CPU"
    assert found.toolchain.environment["governor"] == "performance"
    assert (found.toolchain.compiler, found.toolchain.flags) == ("g++ 13", ("-O3",))
    assert found.identity.variant_digest == variant(16).digest
    assert found.gate.passed[-1] == "G5.T1"
    assert (found.gate.cases, found.gate.worst_ratio, found.gate.unavailable) == (1, 0.25, ("G8.sanitizer",))
    assert found.measurement.median_us == pytest.approx(50.0)
    assert found.measurement.timings[0].blocks == 3
    speedup = found.measurement.speedup
    assert speedup.mid == pytest.approx(2.0)
    assert speedup.low is not None
    assert speedup.high is not None
    assert speedup.low < speedup.mid < speedup.high
    assert found.baseline[0].backend == "flash"
    assert found.baseline[0].median_us == pytest.approx(100.0)
    assert found.recorded_at == best.record.recorded_at
    assert found.confirmed is None


def test_what_the_finals_confirmed_stands_beside_the_estimate(tmp_path: Path) -> None:
    with Store.open(str(tmp_path / "studies.db")) as store:
        store.ensure_study(study_record())
        session = store.start_session("scalar-abc", CALIBRATION, {})
        for number, (tile, us) in enumerate(((16, 48.0), (32, 49.0), (64, 60.0))):
            store.record("scalar-abc", session, number, measured(tile, us))
        hold_finals(store, {16: 50.0, 32: 50.0, 64: 61.0}, {16: 0, 32: 1, 64: 2})
        best = standings.best(store, "scalar-abc")
    assert best is not None
    found = BestConfiguration.model_validate_json(export_json(best, study_record()))
    assert (found.trial, found.note) == (0, CONFIRMED_NOTE)
    assert found.measurement.speedup.mid == pytest.approx(100 / 48)
    confirmed = found.confirmed
    assert confirmed.mid == pytest.approx(2.0, rel=0.005)
    assert confirmed.low is not None
    assert confirmed.high is not None
    assert confirmed.low < confirmed.mid < confirmed.high
    assert confirmed.difference == pytest.approx(100 / 48 / confirmed.mid - 1)
    assert (confirmed.tied, confirmed.crowned) == ((0, 1), False)
    assert (confirmed.processes, confirmed.blocks, confirmed.tie) == (5, 40, 0.005)
    assert confirmed.artifact_digest == artifact(16).digest == found.identity.artifact_digest


def test_a_document_of_another_schema_is_refused(best: Best) -> None:
    document = json.loads(export_json(best, study_record()))
    with pytest.raises(ValidationError, match="schema_version"):
        BestConfiguration.model_validate({**document, "schema_version": 2})


def test_what_has_no_proof_is_not_exported(best: Best) -> None:
    bare = best.outcome.model_copy(update={"gate": GateReport(artifact="a", required=(), checks=())})
    revoked = best.record.model_copy(update={"revoked_at": best.record.recorded_at})
    for record in (best.record.model_copy(update={"outcome": bare}), revoked):
        with pytest.raises(InputError, match="no measured pass"):
            configuration(best.model_copy(update={"record": record}), study_record())
