"""A sweep in the terminal or the program that asks for it: the same machinery as a worker's, in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from autotuner.devices import device_names
from autotuner.store import Store, device_health, sweeps
from autotuner.store.lease import Lease
from autotuner.sweeps import queue
from autotuner.sweeps.sweep_run import Asked, Audience, SweepRun
from autotuner.tuning.workbench import Workbench
from autotuner.values.errors import AutotunerError
from autotuner.values.sweep import State, SweepRequest, Wish

STOPPED = "stopped where it was begun; the same command goes on"


def run_here(store: Store, request: SweepRequest, here: Workbench, audience: Audience) -> str:
    """Runs a sweep of one space in this process; its study.

    Raises Asked where somebody paused or cancelled it, and LeaseHeldError where another process has the study.
    """
    queue.settle_abandoned(store)
    asked = queue.submit(store, request, priority=queue.TOP, foreground=True).sweep
    claim = sweeps.claim(store, asked.id, f"a command, process {Lease.process()}")
    assert claim is not None  # no worker takes what belongs to a command
    run = SweepRun(store, claim, audience, suspicious=None)
    with _settled(store, run):
        (study,) = run.go(here)
    return study


@contextmanager
def _settled(store: Store, run: SweepRun) -> Iterator[None]:
    """Says in the store how the run in the block ended, whatever that is."""
    state, detail = State.CANCELLED, STOPPED
    try:
        yield
        state, detail = State.DONE, ""
    except Asked as asked:
        state, detail = (State.PAUSED if asked.wish == Wish.PAUSE else State.CANCELLED), "by a user"
        raise
    except AutotunerError as error:
        state, detail = State.FAILED, str(error)
        raise
    finally:
        run.end(store, state, detail)


def served_names(here: Workbench) -> tuple[str, ...]:
    """Under which names stores know the devices of a workbench."""
    return device_names(here.device.backend, here.chosen)


def server_of(store: Store, here: Workbench) -> str | None:
    """Which living worker serves a device of the workbench, in words; None where none does."""
    names = served_names(here)
    for each in device_health.every(store):
        if each.name in names and each.holder is not None:
            return f"the worker {each.holder.pid} on {each.holder.host}"
    return None
