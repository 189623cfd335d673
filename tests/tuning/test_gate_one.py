"""`autotuner gate`: one variant through the whole gate, and with --reference PyTorch's backends."""

import json
import shutil
import subprocess
import uuid
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.run.jobs import CalibrationJob, JudgeJob
from autotuner.store import Store
from autotuner.tuning import gate_one as single
from autotuner.tuning.finals import standings
from autotuner.tuning.run.driver import Budget
from autotuner.tuning.run.waiting import held
from autotuner.tuning.workbench import Workbench
from autotuner.values.conditions import Conditions
from autotuner.values.errors import DeviceBusyError, InputError, OracleError
from autotuner.values.gate_report import ReferenceCheck
from autotuner.values.outcome import Calibration, Say
from tests.helpers import needs, simulated
from tests.helpers.command_line import MUTANTS, SPACE, autotuner, lay_out, one_line
from tests.helpers.driven import driver
from tests.helpers.fake_line import FakeLine, Truth
from tests.helpers.inline_executor import InlineExecutor
from tests.helpers.recorded import case_errors
from tests.helpers.refusing import refused

SCHEMA = json.loads((Path(__file__).parent.parent.parent / "docs" / "trial-report.schema.json").read_text())
PROBLEM = SdpaProblem(batch=1, heads=2, seq_q=64, seq_k=64, head_dim=64, dtype="float32")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder: the mutants' family, and a space of four of them."""
    folder = tmp_path_factory.mktemp("user")
    lay_out(folder)
    return folder


def found(target: str, folder: Path, *problems: str) -> single.Judgeable:
    space = str(folder / "space.toml") if "=" in target else None
    return single.subject(target, space, str(folder / "studies.db"), None, problems=problems)


def report(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The report that was printed; it is what its schema says."""
    document: dict[str, Any] = json.loads(done.stdout, parse_constant=pytest.fail)
    jsonschema.validate(document, SCHEMA)
    return document


# Which variant is meant ---------------------------------------------------------------------------------------------


@pytest.mark.timed
def test_a_device_that_another_one_times_is_waited_for(folder: Path) -> None:
    name, heard = f"test-{uuid.uuid4()}", list[str]()
    subject = found("MUTANT=none", folder)
    subject.workbench.chosen = subject.workbench.chosen._replace(locks=(name,))
    with held([name], "a device", 0, lambda _: None), pytest.raises(DeviceBusyError, match="is timed by"):
        single.judge(subject, patience_s=0.1, listen=lambda event: heard.append(event.detail))
    assert heard


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("nothing.so", "no number of a trial"),
        ("IMPL=mutant MUTANT=odd", "MUTANT=odd: space has MUTANT = none, "),
        ("IMPL=mutant TILE=3", "no parameter 'TILE'; there are IMPL, MUTANT"),
        ("7", "studies.db"),
    ],
)
def test_what_is_not_there_is_told_in_one_line(folder: Path, target: str, words: str) -> None:
    with refused(InputError, says=words):
        found(target, folder)


def test_parameters_are_judged_on_the_problem_that_is_asked_for(folder: Path) -> None:
    assert [
        str(each) for each in found("MUTANT=none", folder, "(1,3,40,64) float32").workbench.conditions.problems
    ] == ["(1,3,40,64) float32 full"]
    with refused(InputError, says="a trial has the space and the problems of its study"):
        found("7", folder, "(1,3,40,64) float32")


def test_it_is_judged_as_a_sweep_of_the_space_judges(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its state of the caches, what the calibration found, and the executor, which has the user's baselines."""
    executor = InlineExecutor(FakeLine(lambda _: Truth(us=50.0)))
    monkeypatch.setattr(Workbench, "executor", lambda _: executor)
    single.judge(found("MUTANT=none", folder))
    calibrated, judged = executor.jobs
    assert isinstance(calibrated, CalibrationJob)
    assert isinstance(judged, JudgeJob)
    assert (calibrated.conditions.cache, judged.conditions.cache) == ("warm", "warm")
    assert (judged.conditions.baselines, judged.conditions.baselines_us) == (("fake",), ())


# What the gate says -------------------------------------------------------------------------------------------------


@pytest.mark.timed
@pytest.mark.slow
@pytest.mark.sampled(1, of="all checks of the one to use")
def test_a_right_variant_goes_through_every_check(folder: Path) -> None:
    right = found("MUTANT=none", folder).artifact
    done = autotuner(folder, "gate", "MUTANT=none", "--space", "space.toml", "--json")
    assert done.returncode == 0, done.stderr
    document = report(done)
    assert (document["verdict"], document["fault"]) == ("measured", None)
    assert {check["status"] for check in document["checks"]} == {"pass"}
    assert {"G0.identity", "G2.baseline", "G5.matrix", "G6.soak", "G7.recheck"} <= {
        c["code"] for c in document["checks"]
    }
    identity = document["identity"]
    assert identity["build_id"] == identity["reported"]["build_id"] == right.digest
    assert identity["macros"] == identity["reported"]["macros"] == right.macros
    (full,) = (check for check in document["checks"] if check["code"] == "G5.matrix")
    assert len(full["cases"]) > 30
    assert all(result["errors"]["max_abs"] <= result["errors"]["max_abs_tol"] for result in full["cases"])
    assert {check["backend"] for check in document["references"]} == {"flash", "math"}
    assert "torch" in document["environment"]["versions"]
    assert len(document["measurement"]["timings"][0]["variant_us"]) == single.BLOCKS


@pytest.mark.slow
@pytest.mark.sampled(1, of="judged by a program")
def test_a_wrong_variant_is_rejected_with_place_values_and_cause(folder: Path) -> None:
    done = autotuner(folder, "gate", "MUTANT=k_and_v_swapped", "--space", "space.toml")
    assert done.returncode == 1, done.stderr
    assert [line.split()[0] for line in done.stderr.splitlines()] == ["judging", "putting"]
    for words in (
        "G0.identity",
        "incorrect: G2.T1",
        "Variant: IMPL=mutant MUTANT=k_and_v_swapped",
        "Case: Q1 2x2x200x200 big_v: batch 2, heads 2, 200 query rows, 200 keys",
        "First bad row: batch 0, head 0, row 0; ",
        "Worst element: ",
        " where the reference has ",
        "Likely cause: every row is off",
    ):
        assert words in done.stdout


@pytest.mark.slow
@pytest.mark.timed
@pytest.mark.sampled(0)  # tests/gate/test_sanitizer.py has what the sanitizers say, without a command around them
def test_what_crashes_before_the_sanitizers_goes_under_them_all_the_same(tmp_path: Path) -> None:
    shutil.copytree(MUTANTS / "systemic", tmp_path / "systemic")
    shutil.copytree(MUTANTS / "common", tmp_path / "common")
    source = tmp_path / "systemic" / "systemic.cpp"  # which is wrong in a case of the gate, and in no smaller one
    past = "rows_of(call) * D;"
    source.write_text(source.read_text().replace(past, f"{past} if (call->dim[SDPA_SEQ_Q] > 150)"))
    names = '["none", "writes_past_o"]'
    space = SPACE.replace("mutants_numeric", "systemic").replace(
        next(x for x in SPACE.splitlines() if "o_not" in x), ""
    )
    (tmp_path / "space.toml").write_text(space.replace("[default]", f"MUTANT = {names}\n\n[default]"))
    done = autotuner(tmp_path, "gate", "MUTANT=writes_past_o", "--space", "space.toml", "--sanitize")
    assert done.returncode == 1, done.stderr
    assert done.stdout.count("crashed: process.signal") == 1
    assert "G8.memory: heap-buffer-overflow" in done.stdout
    assert "in variant_run at " in done.stdout
    assert "gate --sanitize" not in done.stdout


@pytest.mark.slow
@needs.nvcc
def test_an_architecture_is_built_for_where_there_is_no_such_device(folder: Path) -> None:
    """What needs a device is no pass, and no fault of the variant."""
    done = autotuner(folder, "gate", "IMPL=scalar", "--space", "sdpa_cuda", "--arch", "sm_80")
    assert done.returncode == 0, done.stderr
    assert "G0.effect" in done.stdout
    assert "No verdict: built for an architecture" in done.stdout
    one_line(autotuner(folder, "gate", "IMPL=mutant", "--space", "space.toml", "--arch", "sm_80"), "--arch")


# The references -----------------------------------------------------------------------------------------------------


def reference_check(backend: str, case: str, max_abs: float | None) -> ReferenceCheck:
    """A backend's answer that is off by so much, with a tolerance of 1; None where it gave none."""
    errors = None if max_abs is None else case_errors(max_abs)
    return ReferenceCheck(backend=backend, case=case, errors=errors)


SOUND = (reference_check("flash", "Q1", 0.25), reference_check("math", "Q1", 0.5))
BROKEN = (reference_check("flash", "Q2", 2.5), reference_check("math", "Q2", None))
BROKEN_CALIBRATION = Calibration(
    baselines=("flash",), timings=(), references=SOUND + BROKEN, versions={"torch": "2.13"}
)


def test_a_backend_that_breaks_its_tolerance_keeps_a_sweep_from_starting(store: Store) -> None:
    class Broken(FakeLine):
        def calibrate(self, conditions: Conditions, say: Say) -> Calibration:
            return BROKEN_CALIBRATION

    backend = Broken(simulated.truth)
    broken = driver(store, InlineExecutor(backend))
    with pytest.raises(OracleError) as raised:
        broken.run(Budget(trials=3))
    assert "flash of torch 2.13 breaks T1 on Q2: 2.50 times the tolerance" in str(raised.value)
    assert "autotuner gate --reference" in str(raised.value)
    assert standings.summary(store, broken.name).judged == 0
