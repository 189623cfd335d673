"""Workers to which something happens while they judge: each is really done, and nothing is lost or judged twice.

Processes, builds and the gate are real, times are drawn (tests/plugins/drawn_cpu).
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState

from autotuner.jobs import queue
from autotuner.store import Store, device_health, queries, sweeps
from autotuner.tuning.workbench import load_space
from autotuner.values import config
from autotuner.values.sweep import State
from tests.helpers.chaos import AROUND, DRAWN, PLUGINS, Chaos, events_of, lay_out_drawn, recorded, require_whole
from tests.helpers.processes import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timed]


@contextmanager
def at_work(folder: Path, devices: str = DRAWN) -> Iterator[Chaos]:
    """Somebody who can start a worker on the folder's store; at the end nothing that it has started is left."""
    chaos = Chaos(folder, str(folder / "studies.db"), 0, devices=devices)
    try:
        yield chaos
    finally:
        chaos.end_worker()
        chaos.wait_for_the_rest()


def ask(store: Store, space: Path, trials: int, devices: str | None = None) -> int:
    """The number of a new sweep."""
    request = queue.request_for(
        load_space(str(space)),
        sampler="random",
        trials=trials,
        devices=devices,
        finals=False,
        cold=True,
        patience_minutes=0.0,
    )
    return queue.submit(store, request)[0][0].id


def in_flight(folder: Path, number: int) -> list[int]:
    """The trials that a worker has begun and nobody has ended."""
    found: list[int] = []
    with Store.open(str(folder / "studies.db")) as store:  # one that is open remembers what it has read
        storage = store.optuna_storage()
        known = {summary.study_name for summary in optuna.get_all_study_summaries(storage)}
        for study in known.intersection({sweeps.one(store, number).study}):
            trials = storage.get_all_trials(storage.get_study_id_from_name(study), deepcopy=False)
            found += [trial.number for trial in trials if trial.state == TrialState.RUNNING]
    return found


def is_over(store: Store, number: int) -> bool:
    return sweeps.one(store, number).state.is_over


@pytest.mark.sampled(1, of="struck workers")
def test_a_build_whose_compiler_was_killed_is_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(config.CACHE, str(tmp_path / "cache"))  # else nothing may have to be built
    lay_out_drawn(tmp_path)
    with at_work(tmp_path) as chaos, Store.open(str(tmp_path / "studies.db")) as store:
        number = ask(store, tmp_path / "space.toml", 5)
        chaos.see_to_the_worker()
        wait_for(lambda: bool(in_flight(tmp_path, number)) and chaos.strike("compiler") == "compiler")
        wait_for(lambda: is_over(store, number))
        assert require_whole(store, sweeps.one(store, number), []) == 5
        verdicts = {verdict for _, verdict in recorded(store, str(sweeps.one(store, number).study)).values()}
        assert "build_failed" not in verdicts, "it is not the variant's fault"
        assert events_of(store, number, "begun") == 1


HASTY = """
from datetime import timedelta

from autotuner.store import Store, lease
from autotuner.jobs import worker

lease.STALE = timedelta(seconds=1)
with Store.open("studies.db") as store:
    worker.Worker(store, worker.served("drawn_cpu"), cache_bytes=None).run(idle_exit=True)
"""
"""A worker that takes over from a stopped one after a second."""


@pytest.mark.sampled(1, of="struck workers")
def test_a_worker_that_stood_still_for_longer_than_its_lease_judges_nothing_twice(tmp_path: Path) -> None:
    """It had a trial in flight, which the next worker judges under its number, and goes on in the middle of that."""
    lay_out_drawn(tmp_path)
    with at_work(tmp_path) as chaos, Store.open(str(tmp_path / "studies.db")) as store:
        number = ask(store, tmp_path / "space.toml", 8)
        chaos.see_to_the_worker()
        wait_for(lambda: events_of(store, number, "judged") > 0 and bool(in_flight(tmp_path, number)))
        with chaos.stopped():
            begun, study = in_flight(tmp_path, number), str(sweeps.one(store, number).study)
            before, first = recorded(store, study), sweeps.one(store, number).holder
            assert first is not None
            wait_for(lambda: queries.now(store) - first.seen > timedelta(seconds=1))
            other = subprocess.Popen([sys.executable, "-c", HASTY], cwd=tmp_path, env={**os.environ, **AROUND})
            wait_for(lambda: len(recorded(store, study)) > len(before))
        assert chaos.wait_for_the_worker() != 0
        assert "was taken over by process" in (tmp_path / "worker.log").read_text()
        assert other.wait(120) == 0
        assert require_whole(store, sweeps.one(store, number), [before]) == 8
        assert {*begun} <= recorded(store, study).keys(), "under its number"
        events = sweeps.events(store, number)
        numbers = [event.data["trial"] for event in events if event.kind == "judged"]
        assert sorted(map(int, map(str, numbers))) == sorted({*map(int, map(str, numbers))})
        assert "its worker had gone" in [event.text for event in events if event.kind == "begun"][1]


MEETING = """
import os
import sys
import time
from pathlib import Path

from autotuner.store import Store
from autotuner.jobs import worker

def hear(line):
    if line.endswith(": begins"):
        Path(f"begun.{os.getpid()}").touch()
        while len(list(Path().glob("begun.*"))) < 2:
            time.sleep(0.05)

with Store.open("studies.db") as store:
    worker.Worker(store, worker.served(sys.argv[1]), hear, None).run(idle_exit=True)
"""
"""A worker that has begun a sweep, and goes on with it once another worker has begun one."""


@pytest.mark.sampled(1, of="struck workers")
def test_two_workers_on_one_file_do_two_sweeps_at_once(tmp_path: Path) -> None:
    lay_out_drawn(tmp_path)
    places = f"{DRAWN}:0", f"{DRAWN}:1"
    space = (tmp_path / "space.toml").read_text()
    (tmp_path / "other.toml").write_text(space.replace("STREAM = [0, 1]", "STREAM = [0]"))
    with Store.open(str(tmp_path / "studies.db")) as store:
        numbers = [
            ask(store, tmp_path / name, 1, place)
            for name, place in zip(("space.toml", "other.toml"), places, strict=True)
        ]
        around = {**os.environ, **AROUND}
        workers = [subprocess.Popen([sys.executable, "-c", MEETING, each], cwd=tmp_path, env=around) for each in places]
        try:
            assert [each.wait(600) for each in workers] == [0, 0]
        finally:
            for each in workers:
                each.kill()
        for number in numbers:
            assert require_whole(store, sweeps.one(store, number), []) == 1
            assert events_of(store, number, "begun") == 1


DOUBTING = """
import os
from pathlib import Path

from autotuner.store import Store
from autotuner.jobs import worker

def hear(line):
    if "probing the device" in line:
        Path(os.environ["OTHER_CPU_IS_SICK"]).unlink()

worker.AGAIN_S = 0.5
with Store.open("studies.db") as store:
    worker.Worker(store, worker.served("other_cpu"), hear, None).run(idle_exit=True)
"""
"""A worker whose device is well again when it probes it, and that tries again after half a second."""


@pytest.mark.sampled(1, of="struck workers")
def test_a_sweep_goes_on_where_a_probe_finds_the_device_well(tmp_path: Path) -> None:
    sick = tmp_path / "sick"
    space = PLUGINS / "rowsum" / "kernels" / "rowsum_other.toml"
    lay_out_drawn(tmp_path)  # its op is that of the other device's space
    with Store.open(str(tmp_path / "studies.db")) as store:
        number = ask(store, space, 1)

        def work() -> None:
            around = {**os.environ, **AROUND, "OTHER_CPU_IS_SICK": str(sick)}
            subprocess.run([sys.executable, "-c", DOUBTING], cwd=tmp_path, env=around, check=True, timeout=600)

        sick.touch()
        work()
        waits = sweeps.one(store, number)
        assert (waits.state, waits.attempts) == (State.QUEUED, 1)
        assert "the device is gone" in waits.detail
        (probe,) = (event.text for event in sweeps.events(store, number) if event.kind == "probe")
        assert probe.endswith("the device is well")
        (device,) = device_health.every(store)
        assert device.health == "healthy"
        wait_for(lambda: [each.id for each in sweeps.due(store)] == [number])
        work()
        done = sweeps.one(store, number)
        assert (done.state, done.attempts) == (State.DONE, 0)
