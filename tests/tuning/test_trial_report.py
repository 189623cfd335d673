"""The report on a trial, as the command line writes it, is what docs/trial-report.schema.json says."""

import json
import math
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from typer.testing import CliRunner

from autotuner.cli.app import app
from autotuner.store import Store
from autotuner.values.outcome import Outcome
from tests.helpers.errors import errors, incorrect
from tests.helpers.recorded import CALIBRATION, measured, rejected, study_record

SCHEMA = json.loads((Path(__file__).parent.parent.parent / "docs" / "trial-report.schema.json").read_text())


def reports(folder: Path, count: int) -> list[dict[str, Any]]:
    """The reports that `show --json` has of the first trials, held to the schema."""
    found = []
    for number in range(count):
        done = CliRunner().invoke(app, ["show", str(number), "--json", "--store", str(folder / "studies.db")])
        assert done.exit_code == 0, done.output
        document = json.loads(done.stdout, parse_constant=pytest.fail)["report"]
        jsonschema.validate(document, SCHEMA)
        found.append(document)
    return found


def recorded(folder: Path, *outcomes: Outcome) -> list[dict[str, Any]]:
    """The reports on outcomes that were made up."""
    with Store.open(str(folder / "studies.db")) as store:
        store.ensure_study(study_record())
        session = store.start_session("scalar-abc", CALIBRATION, {"torch": "2.11"})
        for number, outcome in enumerate(outcomes):
            store.record("scalar-abc", session, number, outcome)
    return reports(folder, len(outcomes))


def test_a_number_that_is_not_finite_is_null(tmp_path: Path) -> None:
    found = errors((0, 0, 0), 1.0, nonfinite=3)
    update = {"max_abs": math.nan, "row_rel": math.inf, "worst_value": -math.inf, "peer_ratio": math.inf}
    (document,) = recorded(tmp_path, incorrect(found.model_copy(update=update)))
    written = document["checks"][0]["cases"][0]["errors"]
    assert [written[name] for name in update] == [None] * 4
    assert written["worst_reference"] == 0.625
    assert document["environment"]["versions"] == {"torch": "2.11"}


@pytest.mark.parametrize("outcome", [measured(16, 50.0), rejected(16)], ids=["measured", "rejected"])
def test_the_schema_refuses_what_is_missing_or_unknown(tmp_path: Path, outcome: Outcome) -> None:
    (document,) = recorded(tmp_path, outcome)
    held_to = jsonschema.validators.validator_for(SCHEMA)(SCHEMA)  # jsonschema.validate checks the schema each time
    for name in document:
        with pytest.raises(jsonschema.ValidationError):
            held_to.validate({key: value for key, value in document.items() if key != name})
    with pytest.raises(jsonschema.ValidationError):
        held_to.validate({**document, "surplus": 1})
