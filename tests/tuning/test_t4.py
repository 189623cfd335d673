"""T4 results: valid by the schema, all trials and all faults, read back equal, and a start for another study."""

import gzip
import json
import math
import warnings
from ast import literal_eval
from itertools import product
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from typer.testing import CliRunner

from autotuner.cli.app import app
from autotuner.devices.cpu.machine import cpu_facts
from autotuner.spaces.branch import Branch
from autotuner.spaces.space import Space
from autotuner.store import Store, queries
from autotuner.tuning import t4
from autotuner.tuning.run.plan import Plan
from autotuner.tuning.transfer import known_points, start
from autotuner.tuning.workbench import load_space
from autotuner.values.errors import InputError
from autotuner.values.variant import Value, Variant
from autotuner.values.verdict import Verdict
from benchmarks.search import hub, landscapes
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
    found, written_by = t4.read(path)
    assert written_by == queries.study(store, study)
    judged = sorted(queries.judged(store, study), key=lambda each: each.number)
    assert [(each.point, each.objective) for each in found] == [(each.point, each.objective) for each in judged]

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
    found, written_by = t4.read(path)
    assert [each.objective for each in found] == pytest.approx([-math.log(2), 0.0, math.inf, math.log(2)])
    assert (found[0].point, written_by) == ({"IMPL": "plain", "BLOCK": 8, "FAST": 1}, None)
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


def test_the_hub_gets_files_by_its_schemas_and_its_t1_has_the_points_of_every_branch(
    store: Store, study: str, tmp_path: Path
) -> None:
    schemas = pytest.importorskip("kernel_tuner.file_utils")
    written = tmp_path / f"study{t4.SUFFIX}"
    written.write_text(json.dumps(t4.document(store, study)))
    found = landscapes.hub_files(written)
    kinds = {"_T4.json.gz": "results", "-metadata.json.gz": "metadata"}
    for end, kind in kinds.items():
        (content,) = (each for name, each in found.items() if name.endswith(end))
        jsonschema.validate(json.loads(gzip.decompress(content)), schemas.output_file_schema(kind)[1])
    jsonschema.validate(json.loads(found[f"kernels/{study}.json"]), schemas.input_file_schema()[1])

    space = load_space("sdpa_cpu", threads=1, problems=["(1,2,64,64) float32 full"])
    both = space.with_branches(branch.model_copy(update={"parameters": _thinned(branch)}) for branch in space.branches)
    device = simulated.DEVICE.model_copy(update={"backend": "cpu", "facts": cpu_facts(1)})
    described = hub.t1("both", both, device, "both.cpp")["ConfigurationSpace"]
    values = {each["Name"]: literal_eval(each["Values"]) for each in described["TuningParameters"]}
    points = (dict(zip(values, point, strict=True)) for point in product(*values.values()))
    conditions = [compile(each["Expression"], "T1", "eval") for each in described["Conditions"]]
    kept = [each for each in points if all(eval(condition, {}, each) for condition in conditions)]
    assert len(both.branches) > 1
    assert len(kept) == len(Space.enumerate(both, device.facts))


def _thinned(branch: Branch) -> dict[str, tuple[Value, ...]]:
    """Its default and two values of three parameters."""
    few = [name for name, values in branch.parameters.items() if len(values) > 1][:3]
    return {
        name: tuple(dict.fromkeys((branch.default[name], *(values[:2] if name in few else ()))))
        for name, values in branch.parameters.items()
    }


@pytest.mark.parametrize("name", ["sdpa_small", "others/sdpa_cpu_small"])
def test_kernel_tuner_plays_a_kept_landscape(name: str, tmp_path: Path) -> None:
    kernel_tuner = pytest.importorskip("kernel_tuner")
    kept = landscapes.LANDSCAPES / f"{name}.json.gz"
    hub.write(tmp_path, landscapes.hub_files(kept))
    cached = min(tmp_path.glob("cachefiles/*/*.json.gz"), key=lambda path: len(path.name))
    cached.with_suffix("").write_bytes(gzip.decompress(cached.read_bytes()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it misses thread blocks
        _, played = kernel_tuner.tune_kernel_T1(
            tmp_path / "kernels" / f"{Path(name).name}.json",
            cached.with_suffix(""),
            simulation_mode=True,
            strategy="brute_force",
        )
    recorded = read_recorded(kept)
    times = [each["value"] for one in played["results"] for each in one["measurements"] if each["name"] == "time"]
    assert sorted(times) == sorted(ms for ms in recorded.ms if ms > 0)
    assert len(played["results"]) == len(recorded.space)
