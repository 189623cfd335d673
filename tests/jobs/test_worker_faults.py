"""What a worker meets in the middle of its work: no space for builds, a device that goes, and time."""

import json
import os
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from autotuner.run.local import LocalExecutor
from autotuner.store import Store, device_health, figures, sweeps
from autotuner.tuning.run.driver import Event, Judged
from autotuner.values import config
from autotuner.values.sweep import State
from tests.helpers import preload, simulated
from tests.helpers.chaos import AROUND, PLUGINS, events_of, recorded, require_whole
from tests.helpers.command_line import autotuner, lay_out
from tests.helpers.driven import swept
from tests.helpers.processes import wait_for

pytestmark = pytest.mark.slow

ASKED = ("--no-finals", "--calm", "--patience", "0.1", "--json")
TRIALS, SETTLED = 40, 15
MIB = 1 << 20


IMPATIENT = """
from autotuner.store import Store
from autotuner.jobs import worker

worker.FULL_S = 0.5
with Store.open("studies.db") as store:
    worker.Worker(store, worker.served("cpu"), cache_bytes=None).run(idle_exit=True)
"""
"""A worker that looks for space after half a second."""


def work(folder: Path, around: dict[str, str], script: str = IMPATIENT) -> None:
    """In a process of its own, as the one that builds has the environment of when it was started."""
    command = [sys.executable, "-c", script]
    subprocess.run(command, cwd=folder, env={**os.environ, **around}, check=True, timeout=600)


@pytest.mark.sampled(1, of="struck workers")
def test_a_sweep_waits_for_space_to_build(tmp_path: Path, small_disk: Path) -> None:
    """The disk is full amid the first build. The sweep stays in the queue, and goes on once there is space."""
    lay_out(tmp_path)
    (small_disk / "ballast").write_bytes(b"x" * (shutil.disk_usage(small_disk).free - 24576))
    around = {config.CACHE: str(small_disk)}
    asked = autotuner(tmp_path, "submit", "space.toml", "--trials", "2", *ASKED, **around)
    number = json.loads(asked.stdout)["number"]
    with Store.open(str(tmp_path / "studies.db")) as store:
        work(tmp_path, around)
        waits = sweeps.one(store, number)
        assert waits.state == State.QUEUED
        assert "no space left" in waits.detail
        subprocess.run(["mount", "-o", "remount,size=500m", str(small_disk)], check=True)
        wait_for(lambda: [each.id for each in sweeps.due(store)] == [number])
        work(tmp_path, around)
        done = sweeps.one(store, number)
        require_whole(store, done, [])  # how many are judged is up to what else the machine does
        assert len(recorded(store, str(done.study))) >= 2


GOING = """
import os
from pathlib import Path

from autotuner.run.local import LocalExecutor
from autotuner.store import Store
from autotuner.jobs import worker
from autotuner.values.outcome import Outcome

answered = LocalExecutor._answered

def noted(self, process, message):
    if isinstance(message.result, Outcome):
        Path(os.environ["OTHER_CPU_IS_SICK"]).touch()
    return answered(self, process, message)

LocalExecutor._answered = noted
with Store.open("studies.db") as store:
    worker.Worker(store, worker.served("other_cpu"), cache_bytes=None).run(idle_exit=True)
"""
"""A worker whose device goes as soon as a trial is judged, before the process for the next one has begun."""


@pytest.mark.sampled(1, of="struck workers")
def test_a_device_that_goes_in_the_middle_costs_no_trial(tmp_path: Path) -> None:
    """It goes after the first trial: quarantine, and the sweep in the queue. Once it is back the sweep is ended."""
    sick = tmp_path / "sick"
    around = {**AROUND, "OTHER_CPU_IS_SICK": str(sick)}
    space = str(PLUGINS / "rowsum" / "kernels" / "rowsum_other.toml")
    asked = autotuner(tmp_path, "submit", space, "--trials", "2", *ASKED, **around)
    number = json.loads(asked.stdout)["number"]
    with Store.open(str(tmp_path / "studies.db")) as store:
        work(tmp_path, around, GOING)
        assert [device.health for device in device_health.every(store)] == ["quarantined"]
        assert events_of(store, number, "judged") == 1
        waits = sweeps.one(store, number)
        assert waits.state == State.QUEUED
        assert "the device is gone" in waits.detail
        sick.unlink()
        assert autotuner(tmp_path, "devices", "clear", **around).returncode == 0
        autotuner(tmp_path, "worker", "--devices", "other_cpu", "--idle-exit", **around)
        done = sweeps.one(store, number)
        assert done.state == State.DONE
        begun = events_of(store, number, "begun")
        assert begun == 2
        # the op is of another package, whose outcomes this process cannot read
        study = str(done.study)
        assert sum(cost.trials for cost in figures.costs(store, study).by_verdict) >= 2


def test_memory_and_open_files_stay_flat(path: Path) -> None:
    """The driver of many trials, each of which has processes of its own, with the default sampler."""
    samples: dict[int, tuple[int, int]] = {}

    def hear(event: Event) -> None:
        if isinstance(event, Judged) and event.judged in (SETTLED, TRIALS):
            samples[event.judged] = _resident_bytes(), len(list(Path("/proc/self/fd").iterdir()))

    jobs = LocalExecutor(simulated.backend, preload=preload.CPU, jobs_per_process=20)
    with Store.open(str(path)) as store, closing(jobs) as executor:
        swept(store, executor, TRIALS, hear)
    (early_bytes, early_files), (late_bytes, late_files) = samples[SETTLED], samples[TRIALS]
    assert late_files <= early_files + 4, "a pipe or a file of each process is left open"
    assert late_bytes - early_bytes < 5 * MIB, f"{(late_bytes - early_bytes) / (TRIALS - SETTLED):.0f} bytes a trial"


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
