"""Commands on sweeps that need no worker: asked for, listed, changed; and what a person may get wrong."""

from __future__ import annotations

import importlib.util
import json
from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from autotuner.cli.sweeps import moment
from autotuner.store import Store, sweeps
from autotuner.sweeps import foreground, queue
from autotuner.sweeps.following import follow, wait
from autotuner.sweeps.sweep_run import SweepRun
from autotuner.tuning.workbench import Workbench
from autotuner.values.errors import InputError
from autotuner.values.sweep import State
from tests.helpers import simulated
from tests.helpers.command_line import SPACE, autotuner, lay_out, one_line


@pytest.mark.rotating(3, of="whole sweeps")
@pytest.mark.slow
def test_a_sweep_is_asked_for_listed_and_changed(tmp_path: Path) -> None:
    lay_out(tmp_path)
    (tmp_path / "space.toml").write_text(SPACE)
    asked = ("submit", "space.toml", "--trials", "3", "--key", "k", "--name", "mine", "--json")
    first = json.loads(autotuner(tmp_path, *asked).stdout)
    assert (first["is_new"], first["place"], first["sweep"]["state"]) == (True, 1, "queued")
    assert json.loads(autotuner(tmp_path, *asked).stdout)["is_new"] is False
    one_line(autotuner(tmp_path, *asked, "--cold"), "the key 'k'", "use another key")
    assert "no worker serves a device of kind cpu" in autotuner(tmp_path, "sweeps").stdout
    assert json.loads(autotuner(tmp_path, "pause", "mine", "--json").stdout)[0]["sweep"]["state"] == "paused"
    one_line(autotuner(tmp_path, "retry", "k"), "is paused and cannot be retried")
    assert "queued" in autotuner(tmp_path, "resume", "1").stdout
    assert autotuner(tmp_path, "cancel", "1").returncode == 0
    assert autotuner(tmp_path, "watch", "1").returncode == 1
    kinds = [json.loads(line)["kind"] for line in autotuner(tmp_path, "logs", "--json").stdout.splitlines()]
    assert kinds == ["submitted", "pause_asked", "resumed", "cancel_asked"]
    one_line(autotuner(tmp_path, "watch", "none"), "sweeps --all")
    one_line(autotuner(tmp_path, "worker", "--devices", "abacus"), "no such kind of device")
    one_line(autotuner(tmp_path, "devices", "clear", "x"), "no device 'x'")
    if importlib.util.find_spec("ray") is None:
        one_line(autotuner(tmp_path, "worker", "--ray", "auto"), "--ray needs Ray: pip install 'autotuner[ray]'")


def test_a_set_has_a_weight_for_each_problem() -> None:
    file = simulated.space().file
    request = queue.request_for([file, file], weights=[1.0, 2.0], name="set")
    assert [member.weight for member in request.members] == [1.0, 2.0]
    with pytest.raises(InputError, match="3 weights for 2 problems"):
        queue.request_for([file, file], weights=[1.0, 2.0, 3.0])
    with pytest.raises(InputError, match="no sampler 'oracle'"):
        queue.request_for([file], sampler="oracle")


def test_a_moment_is_a_time_of_day_a_date_or_a_span() -> None:
    now = datetime(2026, 11, 23, 18, 0, tzinfo=ZoneInfo("Europe/Berlin"))
    assert moment("90m", now) == now + timedelta(minutes=90)
    assert moment("18:30", now) == now + timedelta(minutes=30)
    assert moment("17:30", now) == now + timedelta(hours=23.5), "tomorrow"
    assert moment("2026-12-24T18:30+01:00", now).day == 24
    with pytest.raises(InputError, match="--until 'soon'"):
        moment("soon", now)


def test_events_are_followed_until_the_end(store: Store) -> None:
    number = queue.submit(store, queue.request_for([simulated.space().file])).sweep.id
    seen = []
    for event in follow(store, number):
        seen.append(event.kind)
        if len(seen) == 1:
            sweeps.note(store, number, "judged", "one more")
            queue.cancel(store, number)
    assert seen == ["submitted", "judged", "cancel_asked"]
    assert wait(store, number).state == State.CANCELLED


def test_a_foreground_run_that_is_stopped_says_so_in_the_store(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C, and a failure: neither leaves a sweep that a worker would take."""
    request = queue.request_for([simulated.space().file])
    here = object.__new__(Workbench)
    for error, state in ((KeyboardInterrupt(), State.CANCELLED), (InputError("no"), State.FAILED)):

        def fails(*_: object, error: BaseException = error) -> object:
            raise error

        monkeypatch.setattr(SweepRun, "go", fails)
        with pytest.raises(type(error)):
            foreground.run_here(store, request, here, object())  # type: ignore[arg-type]
        found = queue.resolve(store, None)
        assert (found.state, found.holder) == (state, None)
    assert sweeps.due(store) == ()
