"""T4 results: valid by the schema, all trials and all faults, read back equal, and a start for another study."""

import json
import math
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from typer.testing import CliRunner

from autotuner.cli.app import app
from autotuner.store import Store, queries
from autotuner.tuning import t4
from autotuner.tuning.run.plan import Plan
from autotuner.tuning.transfer import known_points, start
from autotuner.values.errors import InputError
from autotuner.values.variant import Variant
from autotuner.values.verdict import Verdict
from benchmarks.search.replay_spaces import read as read_recorded
from tests.helpers import simulated
from tests.helpers.driven import swept
from tests.helpers.fake_line import FakeLine, Truth
from tests.helpers.files import text
from tests.helpers.inline_executor import InlineExecutor
from tests.helpers.stores import sample_store

SCHEMA = json.loads(text("t4.schema.json"))
"""What https://github.com/odgaard/TuningSchema says of T4 results, version 1.0.0, in our words."""

FAULTS = [verdict for verdict in t4.INVALIDITY if not verdict.has_latency]


def _with_every_fault(variant: Variant) -> Truth:
    """Variants with UNROLL 1 are as simulated; each other has one of the faults."""
    point = variant.point
    if point["UNROLL"] == 1:
        return Truth(us=simulated.microseconds(point))
    return Truth(fault=FAULTS[sum(map(ord, str(variant))) % len(FAULTS)])


@pytest.fixture
def study(store: Store) -> str:
    executor = InlineExecutor(FakeLine(_with_every_fault))
    return swept(store, executor, 80, sampler="random")


def test_every_trial_is_there_and_valid_by_the_schema(store: Store, study: str) -> None:
    found = json.loads(json.dumps(t4.document(store, study), allow_nan=False))
    jsonschema.validate(found, SCHEMA)
    outcomes = dict(store.outcomes(study))
    assert len(found["results"]) == len(outcomes) == 80
    assert {Verdict.MEASURED, *FAULTS} <= {each.verdict for each in outcomes.values()}
    for result, outcome in zip(found["results"], outcomes.values(), strict=True):
        figures = {each["name"]: each["value"] for each in result["measurements"]}
        assert {k: v for k, v in result["configuration"].items() if v is not None} == outcome.variant.point
        assert figures["verdict"] == outcome.verdict
        if outcome.verdict.has_latency:
            assert result["times"]["runtimes"] == pytest.approx(
                [1e-3 * us for us in outcome.measurement.timings[0].variant_us]
            )
            assert figures["time"] == pytest.approx(1e-3 * outcome.measurement.variant_us)
    assert {each["invalidity"] for each in found["results"]} == set(t4.INVALIDITY.values())


def test_it_is_read_back_equal_and_known_points_are_those_of_the_study(
    store: Store, study: str, tmp_path: Path
) -> None:
    path = tmp_path / "study.t4.json"
    path.write_text(json.dumps(t4.document(store, study)))
    found = t4.read(path)
    assert found.study == queries.study(store, study)
    judged = sorted(queries.judged(store, study), key=lambda each: each.number)
    assert [(each.point, each.objective) for each in found.judged] == [(each.point, each.objective) for each in judged]

    space = simulated.space()
    record = Plan(space, simulated.DEVICE, simulated.conditions(), built_from="another").record
    here, there = start(store, record, space, study), start(store, record, space, str(path))
    assert here.known_points == known_points(store, study, space)
    assert there.known_points == here.known_points.model_copy(update={"study": str(path)})
    assert next(iter(there.first)) == next(iter(here.first))
    assert len(read_recorded(path).configurations) == len({json.dumps(each.point) for each in judged})


def test_results_of_others_are_over_their_median_time(tmp_path: Path) -> None:
    def result(block: int, ms: float | None) -> dict[str, Any]:
        return {
            "configuration": {"IMPL": "plain", "BLOCK": block, "FAST": True},
            "times": {},
            "invalidity": "compile" if ms is None else "correct",
            "correctness": 1,
            "measurements": [{"name": "time", "value": ms, "unit": "ms"}] if ms else [],
        }

    path = tmp_path / "others.t4.json"
    path.write_text(json.dumps({"results": [result(8, 1.0), result(16, 2.0), result(32, None), result(64, 4.0)]}))
    found = t4.read(path)
    assert [each.objective for each in found.judged] == pytest.approx([-math.log(2), 0.0, math.inf, math.log(2)])
    assert (found.judged[0].point, found.study) == ({"IMPL": "plain", "BLOCK": 8, "FAST": 1}, None)
    for wrong in ("{}", '{"results": 3}', "no", '{"results": [{"configuration": {"N": 1}, "invalidity": "correct"}]}'):
        path.write_text(wrong)
        with pytest.raises(InputError, match=r"others\.t4\.json: no "):
            t4.read(path)


def test_the_command_writes_what_is_revoked_as_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sample_store(tmp_path / "studies.db")
    monkeypatch.chdir(tmp_path)
    made = CliRunner().invoke(app, ["export", "--format", "t4", "--store", "studies.db"])
    assert (made.exit_code, made.output.endswith("trials written to study.t4.json\n")) == (0, True)
    found = json.loads((tmp_path / "study.t4.json").read_text())
    jsonschema.validate(found, SCHEMA)
    revoked = [
        each
        for each in found["results"]
        if {"name": "fault", "value": "store.revoked", "unit": ""} in each["measurements"]
    ]
    assert [each["invalidity"] for each in revoked] == ["correctness"]
