"""The report on a trial, as the command line writes it, is what docs/trial-report.schema.json says."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from autotuner.store import Store
from autotuner.values.outcome import Outcome
from tests.helpers.command_line import SPACE, autotuner
from tests.helpers.errors import errors, incorrect
from tests.helpers.recorded import CALIBRATION, measured, rejected, study_record
from tests.mutants.expectations import MUTANTS

pytestmark = pytest.mark.timed

SCHEMA = json.loads((Path(__file__).parent.parent.parent / "docs" / "trial-report.schema.json").read_text())
BROKEN = """
[cpu.broken]
source = "broken.cpp"
parameters = ["MUTANT"]
dtypes = ["float32"]
head_dims = [64]
"""


def reports(folder: Path, count: int) -> list[dict[str, Any]]:
    """The reports that `show --json` has of the first trials, held to the schema."""
    found = []
    for number in range(count):
        done = autotuner(folder, "show", str(number), "--json")
        assert done.returncode == 0, done.stderr
        document = json.loads(done.stdout, parse_constant=pytest.fail)["report"]
        jsonschema.validate(document, SCHEMA)
        found.append(document)
    return found


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The reports of a sweep over two variants: one dies, one is refused by the compiler."""
    folder = tmp_path_factory.mktemp("swept")
    shutil.copytree(MUTANTS / "common", folder / "common")
    shutil.copytree(MUTANTS / "systemic", folder / "systemic")
    with (folder / "systemic" / "kernel.toml").open("a") as text:
        text.write(BROKEN)
    (folder / "systemic" / "broken.cpp").write_text("this is no C++\n")
    space = SPACE.replace("mutants_numeric", "systemic").replace('["mutant"]', '["mutant", "broken"]')
    listed = '"none", "o_not_rescaled", "k_and_v_swapped", "last_row_unwritten"'
    (folder / "space.toml").write_text(space.replace(listed, '"trap"').replace('"none"', '"trap"'))
    done = autotuner(folder, "tune", "space.toml", "--trials", "2", "--no-finals")
    assert done.returncode == 0, done.stderr
    return reports(folder, 2)


def only(found: list[dict[str, Any]], verdict: str) -> dict[str, Any]:
    (document,) = (document for document in found if document["verdict"] == verdict)
    return document


@pytest.mark.slow
def test_a_death_is_reported_with_its_signal(swept: list[dict[str, Any]]) -> None:
    document = only(swept, "crashed")
    assert document["fault"]["code"] == "process.signal"
    assert document["fault"]["system"]["signal"] in (4, 5)
    assert document["identity"]["reported"] is None
    assert [(check["code"], check["status"]) for check in document["checks"]] == [
        ("G0.conduct", "pass"),
        ("G0.identity", "pass"),
        ("G1.smoke", "fail"),
    ]


@pytest.mark.slow
def test_a_build_failure_is_reported_without_an_identity(swept: list[dict[str, Any]]) -> None:
    document = only(swept, "build_failed")
    assert document["fault"]["code"] == "build.failed"
    assert "broken.cpp:1" in document["fault"]["detail"]
    assert (document["identity"], document["checks"]) == (None, [])


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
