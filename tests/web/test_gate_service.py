"""POST /gate: a variant of a family in the operator's folder goes through the whole gate; nothing else is reached."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from autotuner.tuning import gate_one
from autotuner.tuning.trial_report import TrialReport
from autotuner.values.errors import DeviceBusyError
from autotuner.web import gate_service
from autotuner.web.access import Settings
from autotuner.web.app import create_app
from autotuner.web.gate_service import GateBusy, GateService
from tests.web.conftest import TOKEN

ROOT = Path(__file__).parent.parent.parent
PROBLEM = {
    "op": "sdpa",
    "dtype": "float32",
    "batch": 1,
    "heads": 2,
    "seq_q": 64,
    "seq_k": 64,
    "head_dim": 64,
    "causal": True,
}
ASKED = {
    "family": "rows",
    "device": "cpu",
    "implementation": "plain",
    "parameters": {"BLOCK_N": 16, "ROWS": 1, "EXP": "libm"},
    "problem": PROBLEM,
    "threads": 1,
}
WRONG: tuple[dict[str, object], ...] = (
    {"family": "../own_kernel/rows"},
    {"family": "/etc"},
    {"family": "sdpa"},  # shipped, and not in the folder
    {"device": "tpu"},
    {"implementation": "other"},
    {"parameters": {"BLOCK_N": 16, "ROWS": 1}},
    {"parameters": {"BLOCK_N": 16, "ROWS": 1, "EXP": "libm -fplugin=evil.so"}},
    {"parameters": {"BLOCK_N": 16, "ROWS": 1, "EXP": "libm", "-include": "x"}},
    {"problem": {**PROBLEM, "seq_k": 2**31 - 1}},
    {"problem": {**PROBLEM, "op": "rmsnorm"}},
)


@pytest.fixture
def judging(tmp_path: Path, empty: Path) -> Iterator[TestClient]:
    """A server whose operator named a folder with one family."""
    shutil.copytree(ROOT / "examples" / "own_kernel", tmp_path / "families")
    store = Path(shutil.copy(empty, tmp_path / "studies.db"))
    settings = Settings(store=str(store), token=TOKEN, families=tmp_path / "families")
    with TestClient(create_app(settings), base_url="http://localhost") as found:
        yield found


def test_the_gate_needs_the_token(judging: TestClient) -> None:
    assert judging.post("/api/v1/gate", json=ASKED).status_code == 401


def test_without_a_folder_nothing_is_judged(writable: TestClient, shown: dict[str, str]) -> None:
    answer = writable.post("/api/v1/gate", headers=shown, json=ASKED)
    assert answer.status_code == 400
    assert "--families" in answer.json()["error"]


@pytest.mark.slow
def test_what_is_not_in_the_folder_is_refused(judging: TestClient, shown: dict[str, str]) -> None:
    for wrong in WRONG:
        answer = judging.post("/api/v1/gate", headers=shown, json={**ASKED, **wrong})
        assert answer.status_code in (400, 422), wrong
        assert answer.json()["error"]


@pytest.mark.slow
@pytest.mark.sampled(2, of="whole sweeps")
def test_a_wrong_one_is_rejected_with_its_report(judging: TestClient, shown: dict[str, str]) -> None:
    """Its exponential is too coarse on purpose."""
    parameters = {"BLOCK_N": 16, "ROWS": 1, "EXP": "coarse"}
    answer = judging.post("/api/v1/gate", headers=shown, json={**ASKED, "parameters": parameters})
    assert answer.status_code == 200, answer.text
    report = answer.json()
    assert report["verdict"] == "incorrect"
    assert report["checks"][-1]["status"] == "fail"
    assert report["variant"]["parameters"]["EXP"] == "coarse"


@pytest.mark.slow
@pytest.mark.sampled(2, of="whole sweeps")
def test_a_right_one_passes_with_its_report(judging: TestClient, shown: dict[str, str]) -> None:
    answer = judging.post("/api/v1/gate", headers=shown, json=ASKED)
    assert answer.status_code == 200, answer.text
    report = answer.json()
    assert report["verdict"] == "measured", report["fault"]
    assert {check["status"] for check in report["checks"]} <= {"pass", "unavailable"}


def test_while_another_autotuner_times_the_device_the_caller_is_told_to_come_again(
    judging: TestClient, shown: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def timed_by_another(*_: object) -> TrialReport:
        raise GateBusy("NVIDIA X is timed by autotuner (pid 7) of somebody: wait for it, or stop it")

    monkeypatch.setattr(GateService, "_judged", timed_by_another)
    answer = judging.post("/api/v1/gate", headers=shown, json=ASKED)
    assert answer.status_code == 429
    assert "is timed by" in answer.json()["error"]
    assert int(answer.headers["Retry-After"]) > 0


def test_the_process_that_judges_waits_for_no_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def busy(_: object, patience_s: float) -> None:
        assert patience_s == 0
        raise DeviceBusyError("NVIDIA X is timed by another")

    monkeypatch.setattr(gate_one, "of_family", lambda *_: None)
    monkeypatch.setattr(gate_one, "judge", busy)
    assert gate_service.main(tmp_path, json.dumps(ASKED)) == gate_service.BUSY
    assert capsys.readouterr().err == "NVIDIA X is timed by another\n"
