"""Workers as they are run: killed, told to go, and on a device that is sick."""

import json
import signal
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from autotuner.jobs import worker
from autotuner.jobs.signals import StopSignal
from autotuner.store import Store, device_health, sweeps
from autotuner.store.records import SweepRecord
from autotuner.values.sweep import State
from tests.helpers.chaos import AROUND, GRACE_S, PLUGINS, Chaos, events_of, require_whole
from tests.helpers.command_line import SPACE, autotuner, lay_out
from tests.helpers.processes import wait_for

ASKED = ("--no-finals", "--calm", "--patience", "0.1", "--json")


@pytest.mark.slow
@pytest.mark.timed
@pytest.mark.sampled(1, of="whole sweeps")
def test_a_sweep_outlives_its_workers(tmp_path: Path) -> None:
    """One is killed, the next one is told to go and hands back, the third one ends it; the file of the space was
    edited meanwhile."""
    lay_out(tmp_path)
    path = str(tmp_path / "studies.db")
    chaos = Chaos(tmp_path, path, 0)
    number = json.loads(chaos.command("submit", "space.toml", "--trials", "2", *ASKED))["number"]
    (tmp_path / "space.toml").write_text(SPACE.replace('"k_and_v_swapped", ', ""))
    with Store.open(path) as store:
        chaos.see_to_the_worker()
        wait_for(lambda: events_of(store, number, "judged") > 0)
        chaos.strike("worker")
        chaos.see_to_the_worker()
        wait_for(lambda: sweeps.one(store, number).holder is not None)
        chaos.command("sweep", "set", str(number), "--trials", "4")
        chaos.end_worker(signal.SIGUSR1)
        assert chaos.slowest_end_s < GRACE_S
        back = sweeps.one(store, number)
        assert (back.state, back.detail) == (State.QUEUED, "handed back: SIGUSR1")
        chaos.wait_for_the_rest()
        done = autotuner(tmp_path, "worker", "--idle-exit")
        assert done.returncode == 0, done.stderr
        sweep = sweeps.one(store, number)
        assert require_whole(store, sweep, []) == 4
        assert sweep.spent_s > back.spent_s > 0
        assert events_of(store, number, "begun") == 3


def test_a_second_worker_of_a_device_stands_by(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    serves, stop, said = worker.served("cpu"), StopSignal(), list[str]()
    first = ExitStack()
    words: dict[str, tuple[str, ...]] = dict.fromkeys(serves.names, ())
    first.enter_context(device_health.serving(store, words, "here", "cpu", "a CPU", "the first"))

    def say(line: str) -> None:
        said.append(line.partition(":")[0].partition(" ")[0])
        first.close()
        stop.why = "SIGTERM" if line.startswith("serves") else None

    monkeypatch.setattr(worker, "POLL_S", 0.01)
    assert worker.Worker(store, serves, say, None, stop).run() == "stopped by SIGTERM"
    assert said == ["stands", "serves"]


@pytest.mark.slow
@pytest.mark.timed
@pytest.mark.sampled(1, of="whole sweeps")
def test_a_sick_device_is_put_into_quarantine_and_cleared(tmp_path: Path) -> None:
    """Its process cannot open it: a probe finds that of a known-good variant as well, and no sweep is lost to it."""
    kernels = PLUGINS / "rowsum" / "kernels"
    sick = tmp_path / "sick"
    around = {**AROUND, "OTHER_CPU_IS_SICK": str(sick)}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        done = autotuner(tmp_path, *arguments, **around)
        assert done.returncode == 0, done.stderr
        return done

    asked = ("submit", str(kernels / "rowsum_other.toml"), "--trials", "1", *ASKED)
    numbers = [json.loads(run(*asked, "--name", name).stdout)["number"] for name in ("a", "b")]
    sick.touch()
    said = run("worker", "--devices", "other_cpu", "--idle-exit").stdout
    assert "in quarantine" in said
    with Store.open(str(tmp_path / "studies.db")) as store:
        (device,) = device_health.every(store)
        assert device.health == "quarantined"
        assert "the device is gone" in device.reason
        assert f"`autotuner devices clear {device.name}`" in device.remedy
        assert [sweeps.one(store, number).state for number in numbers] == [State.QUEUED] * 2
        sick.unlink()
        run("worker", "--devices", "other_cpu", "--idle-exit")
        assert states(store, numbers) == [State.QUEUED] * 2, "nobody has cleared it"
        assert device.name in run("devices", "clear").stdout
        run("worker", "--devices", "other_cpu", "--idle-exit")
        assert states(store, numbers) == [State.DONE] * 2


def states(store: Store, numbers: list[int]) -> list[State]:
    found: list[SweepRecord] = [sweeps.one(store, number) for number in numbers]
    return [each.state for each in found]
