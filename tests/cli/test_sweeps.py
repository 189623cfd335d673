"""Commands on sweeps that need no worker: asked for, listed, changed; and what a person may get wrong."""

import importlib.util
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from autotuner.jobs import queue, sweep_run
from autotuner.jobs.sweep_run import SweepRun
from autotuner.store import Store, device_health, sweeps
from autotuner.tuning.workbench import Workbench
from autotuner.values.errors import InputError
from autotuner.values.sweep import State
from tests.helpers import simulated
from tests.helpers.command_line import autotuner, lay_out, one_line


@pytest.mark.sampled(1, of="whole sweeps")
@pytest.mark.slow
def test_a_sweep_is_asked_for_listed_and_changed(tmp_path: Path) -> None:
    lay_out(tmp_path)
    asked = ("submit", "space.toml", "--trials", "3", "--key", "k", "--name", "mine", "--json")
    first = json.loads(autotuner(tmp_path, *asked).stdout)
    assert (first["is_new"], first["place"], first["state"]) == (True, 1, "queued")
    assert json.loads(autotuner(tmp_path, *asked).stdout)["is_new"] is False
    one_line(autotuner(tmp_path, *asked, "--cold"), "the key 'k'", "use another key")
    assert "no worker serves a device of kind cpu" in autotuner(tmp_path, "sweep", "list").stdout
    assert json.loads(autotuner(tmp_path, "sweep", "pause", "mine", "--json").stdout)[0]["state"] == "paused"
    one_line(autotuner(tmp_path, "sweep", "retry", "k"), "is paused and cannot be retried")
    assert state_after(tmp_path, "sweep", "resume", "1") == "queued"
    (listed,) = json.loads(autotuner(tmp_path, "sweep", "list", "--json").stdout)
    assert (listed["place"], listed["name"], listed["left_s"]) == (1, "mine", None)
    assert state_after(tmp_path, "sweep", "cancel", "1") == "cancelled"
    assert state_after(tmp_path, "sweep", "retry", "1") == "queued"
    assert "cancelled" in autotuner(tmp_path, "sweep", "cancel", "1").stdout
    kinds = [each["kind"] for each in json_lines(tmp_path, "sweep", "logs", "--json")]
    assert kinds == ["submitted", "pause_asked", "resumed", "cancel_asked", "retried", "cancel_asked"]
    *events, last = json_lines(tmp_path, "sweep", "watch", "1", "--json", code=1)
    assert [each["kind"] for each in events] == kinds
    assert last["state"] == "cancelled"
    assert len(json.loads(autotuner(tmp_path, "sweep", "list", "--all", "--json").stdout)) == 1
    one_line(autotuner(tmp_path, "sweep", "watch", "none"), "sweep list --all")
    one_line(autotuner(tmp_path, "worker", "--devices", "abacus"), "no such kind of device")
    one_line(autotuner(tmp_path, "devices", "clear", "x"), "no device 'x'")
    if importlib.util.find_spec("ray") is None:
        said = "--ray needs Ray: pip install 'kernel-autotuner[ray]'"
        one_line(autotuner(tmp_path, "worker", "--ray", "auto"), said)


@pytest.mark.sampled(1, of="whole sweeps")
@pytest.mark.slow
def test_a_worker_and_its_devices_speak_json(tmp_path: Path) -> None:
    said = json_lines(tmp_path, "worker", "--devices", "cpu", "--idle-exit", "--json")
    assert all(datetime.fromisoformat(each["at"]).tzinfo is not None for each in said)
    assert said[0]["text"].startswith("serves ")
    assert said[-1]["text"] == "nothing is left to do"
    (device,) = json.loads(autotuner(tmp_path, "devices", "--json").stdout)
    assert (device["backend"], device["health"], device["worker"], device["words"]) == ("cpu", "healthy", None, [])
    assert json.loads(autotuner(tmp_path, "devices", "clear", "--json").stdout) == []
    with Store.open(str(tmp_path / "studies.db")) as store:
        device_health.quarantine(store, [device["name"]], "it is hot", "cool it", None)
    assert json.loads(autotuner(tmp_path, "devices", "clear", "--json").stdout) == [device["name"]]


def state_after(folder: Path, *words: str) -> str:
    """Of the one sweep that a command has changed."""
    (found,) = json.loads(autotuner(folder, *words, "--json").stdout)
    return str(found["state"])


def json_lines(folder: Path, *words: str, code: int = 0) -> list[dict[str, Any]]:
    """What a command prints, a document a line."""
    done = autotuner(folder, *words)
    assert done.returncode == code, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.sampled(1, of="whole sweeps")
@pytest.mark.slow
def test_each_problem_is_a_sweep_of_a_group(tmp_path: Path) -> None:
    """Full and causal ones side by side, which no one study can have."""
    lay_out(tmp_path)
    problems = ("(1,2,64,64) float32", "(1,2,64,64) float32 causal")
    asked = ("submit", "sdpa_cpu", "--each", "--name", "both", "--minutes", "3", "--key", "k", "--json")
    made = json.loads(autotuner(tmp_path, *asked, *(f"--problem={each}" for each in problems)).stdout)
    requests = made["sweeps"]
    assert [len(each["problems"]) for each in requests] == [1, 1]
    assert [("causal" in each["problems"][0]) for each in requests] == [False, True]
    assert [each["minutes"] for each in requests] == [1.5, 1.5]
    assert (made["name"], made["state"], made["is_new"]) == ("both", "queued", True)
    assert "both: (1,2,64,64) float32 causal" in " ".join(autotuner(tmp_path, "sweep", "list").stdout.split())
    paused = json.loads(autotuner(tmp_path, "sweep", "pause", "both", "--json").stdout)
    assert [each["state"] for each in paused] == ["paused"] * 2
    assert state_after(tmp_path, "sweep", "cancel", "1") == "cancelled"
    assert "group both" not in autotuner(tmp_path, "sweep", "list").stdout, "which has no more than what is open"
    assert state_after(tmp_path, "sweep", "cancel", "both") == "cancelled", "the other one"
    one_line(autotuner(tmp_path, "sweep", "cancel", "both"), "there is nothing to cancel")
    done = autotuner(tmp_path, "sweep", "watch", "k")
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == "group both: cancelled; 0 of 2 sweeps are done and have a result"


def test_a_foreground_run_that_is_stopped_says_so_in_the_store(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C, and a failure: neither leaves a sweep that a worker would take."""
    request = queue.request_for(simulated.space().file)
    here = object.__new__(Workbench)
    for error, state in ((KeyboardInterrupt(), State.CANCELLED), (InputError("no"), State.FAILED)):

        def fails(*_: object, error: BaseException = error) -> object:
            raise error

        monkeypatch.setattr(SweepRun, "go", fails)
        with pytest.raises(type(error)):
            sweep_run.run_here(store, request, here, object())  # type: ignore[arg-type]
        found = queue.resolve(store, None)
        assert (found.state, found.holder) == (state, None)
    assert sweeps.due(store) == ()
