"""best.json: it holds the proof, it is strict JSON, and it is written whole or not at all."""

from __future__ import annotations

import errno
import json
import math
import os
from pathlib import Path

import pytest

from autotuner.export.best import (
    CONFIRMED_NOTE,
    FORMATS,
    NOTE,
    BestConfiguration,
    configuration,
    export_json,
    render,
    write_atomically,
)
from autotuner.store import Store
from autotuner.tuning import standings
from autotuner.tuning.standings import Best
from autotuner.values.errors import DiskFullError, InputError
from autotuner.values.gate_report import CheckResult, GateReport
from autotuner.values.outcome import Outcome
from tests.helpers.recorded import CALIBRATION, artifact, hold_finals, measured, study_record, variant, with_error


def with_errors(outcome: Outcome, max_abs: float, tolerance: float) -> Outcome:
    found = with_error(outcome, max_abs, tolerance)
    assert found.gate is not None
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
    assert (found.schema_version, found.study, found.trial, found.note) == (1, "scalar-abc", 3, NOTE)
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
    assert speedup.median == pytest.approx(2.0)
    assert speedup.low is not None
    assert speedup.high is not None
    assert speedup.low < speedup.median < speedup.high
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
    assert found.measurement.speedup.median == pytest.approx(100 / 48)
    confirmed = found.confirmed
    assert confirmed is not None
    assert confirmed.mean == pytest.approx(2.0, rel=0.005)
    assert confirmed.low is not None
    assert confirmed.high is not None
    assert confirmed.low < confirmed.mean < confirmed.high
    assert confirmed.difference == pytest.approx(100 / 48 / confirmed.mean - 1)
    assert (confirmed.tied, confirmed.crowned) == ((0, 1), False)
    assert (confirmed.processes, confirmed.blocks, confirmed.tie) == (5, 40, 0.005)
    assert confirmed.artifact_digest == artifact(16).digest == found.identity.artifact_digest


@pytest.mark.parametrize(("error", "ratio"), [(0.0, 0.0), (0.5, None)])
def test_a_tolerance_of_zero_is_no_division(tmp_path: Path, error: float, ratio: float | None) -> None:
    text = export_json(best_of(tmp_path, with_errors(measured(16, 50.0), error, 0.0)), study_record())
    strict = json.loads(text, parse_constant=pytest.fail)
    assert strict["gate"]["worst_ratio"] == ratio


def test_an_interval_that_the_blocks_cannot_bound_is_null(best: Best) -> None:
    wide = best.entry.speedup.model_copy(update={"high": math.inf})
    entry = best.entry.model_copy(update={"speedup": wide})
    text = export_json(best.model_copy(update={"entry": entry}), study_record())
    assert json.loads(text, parse_constant=pytest.fail)["measurement"]["speedup"]["high"] is None
    assert BestConfiguration.model_validate_json(text).measurement.speedup.high is None


def test_the_schema_describes_every_field(best: Best) -> None:
    schema = BestConfiguration.model_json_schema(mode="serialization")
    assert set(schema["properties"]) == set(json.loads(export_json(best, study_record())))


def test_what_has_no_proof_is_not_exported(best: Best) -> None:
    bare = best.outcome.model_copy(update={"gate": GateReport(artifact="a", required=(), checks=())})
    revoked = best.record.model_copy(update={"revoked_at": best.record.recorded_at})
    for record in (best.record.model_copy(update={"outcome": bare}), revoked):
        with pytest.raises(InputError, match="no measured pass"):
            configuration(best.model_copy(update={"record": record}), study_record())


def test_formats_are_chosen_by_name(best: Best) -> None:
    assert FORMATS["json"].filename == "best.json"
    assert json.loads(render(best, study_record(), "json"))["trial"] == 3
    with pytest.raises(InputError, match="choose one of json"):
        render(best, study_record(), "yaml")


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    target = tmp_path / "best.json"
    write_atomically(target, "one")
    write_atomically(target, "zwei \N{SNOWMAN}")
    assert target.read_text(encoding="utf-8") == "zwei \N{SNOWMAN}"
    assert [each.name for each in tmp_path.iterdir()] == ["best.json"]
    plain = tmp_path / "plain"
    plain.write_text("")
    assert target.stat().st_mode == plain.stat().st_mode


@pytest.mark.parametrize(
    ("code", "error"), [(errno.ENOSPC, DiskFullError), (errno.EDQUOT, DiskFullError), (errno.EACCES, InputError)]
)
def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, error: type[Exception]
) -> None:
    target = tmp_path / "best.json"
    write_atomically(target, "old")

    def fail(_handle: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(error, match=r"best\.json"):
        write_atomically(target, "new")
    assert target.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["best.json"]


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a folder"):
        write_atomically(tmp_path / "missing" / "best.json", "x")
    with pytest.raises(InputError, match="is a folder"):
        write_atomically(tmp_path, "x")
