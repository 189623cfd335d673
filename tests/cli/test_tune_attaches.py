"""`autotuner tune` where a worker serves the device: it asks for its sweep before all others, and shows it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from autotuner.jobs import queue
from autotuner.store import Store, device_health, sweeps
from autotuner.values.sweep import State
from tests.helpers.chaos import Chaos
from tests.helpers.command_line import SPACE, autotuner, lay_out
from tests.helpers.processes import wait_for
from tests.helpers.terminal import Terminal

pytestmark = [pytest.mark.slow, pytest.mark.timed]

MORE = ', "batches_swapped", "columns_swapped", "dims_dropped", "drop_tail_key", "k_shifted", "head_zero_for_all"]'
LAST = '"last_row_unwritten"'


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Chaos]:
    """Serves this machine's CPU, beside a space that takes a while."""
    lay_out(tmp_path, SPACE.replace(f"{LAST}]", LAST + MORE))
    found = Chaos(tmp_path, str(tmp_path / "studies.db"), 0)
    found.see_to_the_worker()
    yield found
    found.end_worker()
    found.wait_for_the_rest()


def tune(trials: int) -> tuple[str, ...]:
    return "tune", "space.toml", "--trials", str(trials), "--no-finals", "--calm", "--patience", "0.1"


@pytest.mark.sampled(1, of="whole sweeps")
def test_a_command_shows_the_sweep_of_a_worker_and_ctrl_c_does_what_it_says(tmp_path: Path, worker: Chaos) -> None:
    with Store.open(str(tmp_path / "studies.db")) as store:
        wait_for(lambda: any(each.holder is not None for each in device_health.every(store)))
        (device,) = device_health.every(store)
        leaves = Terminal(tmp_path, *tune(10), columns=200)
        leaves.until("] trial 0")
        shown = queue.resolve(store, None)
        who = f"the worker {device.holder.pid} on {device.holder.host} has the device: this is its sweep {shown.id} now"
        assert who in leaves.text
        assert "before all others. Ctrl-C leaves it running; `autotuner sweep watch` shows it again" in leaves.text
        assert (shown.priority, shown.foreground, shown.request.devices) == (queue.TOP, False, None)
        with worker.stopped():  # so that its sweep is not over before the keys are typed
            leaves.press("\x03")
            assert leaves.end() == 130
            assert f"sweep {shown.id} goes on; `autotuner sweep watch {shown.id}` shows it again" in leaves.text
            assert sweeps.one(store, shown.id).state == State.RUNNING

            cancels = Terminal(tmp_path, *tune(10), "--cancel-on-stop", columns=200)
            cancels.until("Ctrl-C cancels it")
            cancels.press("\x03")
            assert cancels.end() == 130
            behind = queue.resolve(store, None)
            assert f"sweep {behind.id} is cancelled; its study keeps what was judged" in cancels.text
            assert (behind.priority, behind.state) == (queue.TOP, State.CANCELLED)
            queue.cancel(store, shown.id)
        wait_for(lambda: sweeps.one(store, shown.id).state.is_over)  # cancelled, or at its end before it heard of that
        done = autotuner(tmp_path, *tune(1))
        assert done.returncode == 0, done.stderr
        assert "best.json has" in done.stdout  # its trial, or the fastest of what is slower than the baseline
        last = queue.resolve(store, None)
        assert (last.priority, last.state) == (queue.TOP, State.DONE)
