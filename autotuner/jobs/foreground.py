"""A sweep in the terminal or the program that asks for it: the same machinery as a worker's, in this process."""

from collections.abc import Sequence
from contextlib import suppress

from autotuner.jobs import queue
from autotuner.jobs.outlook import LivingWorker, living
from autotuner.jobs.sweep_run import Interrupted, Listener, SweepRun
from autotuner.store import Store, device_health, sweeps
from autotuner.store.lease import Lease
from autotuner.store.sweeps import WISHED
from autotuner.tuning.workbench import Workbench
from autotuner.values.errors import AutotunerError, DiskFullError, InputError, StoreError
from autotuner.values.sweep import State, SweepRequest

STOPPED = "stopped where it was begun; the same command goes on"
REMEDY = "name devices that one worker serves, or that none does"


def run_here(store: Store, request: SweepRequest, here: Workbench, listener: Listener) -> str:
    """Runs a sweep of one space in this process; its study.

    Raises Interrupted where somebody paused or cancelled it, and LeaseHeldError where another process has the study.
    """
    queue.settle_abandoned(store)
    asked, _ = queue.submit(store, request, priority=queue.TOP, foreground=True)
    claim = sweeps.claim(store, asked.id, f"a command, process {Lease.process()}")
    assert claim is not None  # no worker takes what belongs to a command
    run = SweepRun(store, claim, listener, suspicious=None)
    state, detail = State.CANCELLED, STOPPED
    try:
        study = run.go(here)
        state, detail = State.DONE, ""
    except Interrupted as interrupted:
        state, detail = WISHED[interrupted.wish], "by a user"
        raise
    except AutotunerError as error:
        state, detail = State.FAILED, str(error)
        raise
    finally:
        # A store that cannot be reached is told by the lease of a process that has gone.
        with suppress(StoreError, DiskFullError):
            run.end(state, detail)
        claim.lease.release()
    return study


def server_of(store: Store, request: SweepRequest, names: Sequence[str]) -> tuple[LivingWorker, str | None] | None:
    """Which living worker serves devices of these names, in the store's words, and what `--devices` calls them in its
    process, None where any of its devices will do; None where none serves any of them.

    Raises InputError where some of them are served and no worker serves all, or where one is in quarantine.
    """
    known = [each for each in device_health.every(store) if each.name in names]
    workers = living(known)
    if not workers:
        return None
    served = workers[0].devices
    if len(served) < len(names):
        holders = {each.name: each.holder for each in known if each.holder is not None}
        said = (f"process {holders[name].pid}" if name in holders else "nobody" for name in names)
        who = ", ".join(f"{name} is served by {by}" for name, by in zip(names, said, strict=True))
        raise InputError(f"--devices {request.devices}: {who}: {REMEDY}")
    if workers[0].sick is not None:
        sick = workers[0].sick
        raise InputError(f"{sick.name} is in quarantine: {sick.reason}; {sick.remedy} {sick.name}")
    own = [each.words[0] for each in served if each.words]
    return workers[0], ",".join(own) if own and request.devices is not None else None
