"""Why a sweep waits and when it may start, from what workers say of themselves in the store."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from autotuner.devices import DEVICES, Chosen, Wishes
from autotuner.devices.cuda.probe import CudaFacts
from autotuner.jobs import queue, worker
from autotuner.jobs.outlook import outlook, server_of
from autotuner.jobs.sweep_run import SweepRun
from autotuner.jobs.worker import Worker, served
from autotuner.store import Store, device_health, lease, sweeps
from autotuner.store.tables import LeaseRow
from autotuner.tuning.run.waiting import held
from autotuner.tuning.workbench import load_space
from autotuner.values.errors import InfrastructureError
from autotuner.values.sweep import State, SweepRequest
from tests.helpers import simulated
from tests.helpers.stores import transaction


def ask(store: Store, name: str, devices: str | None = None, backend: str = "cuda") -> int:
    request = queue.request_for(simulated.space().file, name=name, devices=devices, backend=backend, trials=10)
    return queue.submit(store, request)[0][0].id


@contextmanager
def serving(store: Store, *numbers: int, every: bool = False, pid: int | None = None) -> Iterator[None]:
    """A worker of these GPUs; `pid`: of another living process, where this one is a worker already."""
    words = {f"h/GPU-{number}": (f"cuda:{number}", *(("all",) if every else ())) for number in numbers}
    with device_health.serving(store, words, "h", "cuda", "a GPU", "worker"):
        if pid is not None:
            with transaction(store, writes=True) as session:
                for name in words:
                    row = session.get_one(LeaseRow, lease.of("device", name))
                    row.pid, row.pid_started = pid, lease.start_of(pid) or ""
        yield


def waits(store: Store, number: int) -> str | None:
    return outlook(store, number).waits


def test_a_sweep_for_a_device_that_nobody_serves_is_told_so(store: Store) -> None:
    number = ask(store, "a", "cuda:1")
    assert waits(store, number) == "no worker serves a device of kind cuda: start `autotuner worker`"
    with serving(store, 0):
        found = outlook(store, number)
        assert found.waits == "no worker serves cuda:1: start `autotuner worker --devices cuda:1`"
        other = ask(store, "b")
        assert waits(store, other) == "a worker is about to take it", "nobody who waits for cuda:1 is before it"
    with serving(store, 0, 1):
        assert waits(store, number) == "a worker is about to take it"
        assert waits(store, other) == "behind 1 other"


# tune, where workers serve devices ------------------------------------------------------------------------------------


def request_of(store: Store, devices: str | None) -> SweepRequest:
    return sweeps.one(store, ask(store, "a", devices)).request


def test_a_command_attaches_to_the_worker_that_serves_all_its_devices(store: Store) -> None:
    """Under that one's words, which are others where the command sees other devices."""
    request = request_of(store, "cuda:2,cuda:3")
    assert server_of(store, request, ["h/GPU-0", "h/GPU-1"]) is None
    with serving(store, 0, 1):
        found = server_of(store, request, ["h/GPU-0", "h/GPU-1"])
        anyone = server_of(store, request_of(store, None), ["h/GPU-0"])
        assert [words for _, words in filter(None, (found, anyone))] == ["cuda:0,cuda:1", None]
        assert {worker.holder.pid for worker, _ in filter(None, (found, anyone))} == {os.getpid()}


# What a worker says of itself -----------------------------------------------------------------------------------------


def gpu(number: int, name: str = "NVIDIA H200") -> CudaFacts:
    return CudaFacts(name=name, uuid=f"GPU-{number}", sm=90, multiprocessors=132, l2_bytes=50 << 20, driver="13.0")


@pytest.mark.parametrize(
    ("served", "there", "taken"),
    [
        (None, 2, {None, "cuda:0"}),
        ("cuda:1", 2, {None, "cuda:1"}),
        ("cuda:1,cuda:0", 3, {None, "cuda:0", "cuda:1", "cuda:0,cuda:1"}),
        ("cuda:0,cuda:1", 2, {None, "cuda:0", "cuda:1", "cuda:0,cuda:1", "all"}),
        ("all", 2, {None, "cuda:0", "cuda:1", "cuda:0,cuda:1", "all"}),
        ("cuda", 1, {None, "cuda:0", "all"}),
    ],
)
def test_a_worker_takes_what_the_store_says_it_takes(
    store: Store, monkeypatch: pytest.MonkeyPatch, served: str | None, there: int, taken: set[str | None]
) -> None:
    """By the same rule, of the words that the worker found for its devices."""
    monkeypatch.setattr("autotuner.devices.cuda.facts.probe_all", lambda: tuple(map(gpu, range(there))))
    monkeypatch.setattr(worker, "DEVICES", {"cuda": DEVICES["cuda"]._replace(missing=lambda: None)})
    serves = worker.served(served)
    asked = [None, "cuda:0", "cuda:1", "cuda:2", "cuda:0,cuda:1", "all"]
    found = [sweeps.one(store, ask(store, str(devices), devices)) for devices in asked]
    assert {each.request.devices for each in found if serves.fits(each)} == taken
    with device_health.serving(store, dict(zip(serves.names, serves.words, strict=True)), "h", "cuda", "", "worker"):
        shown = {each.request.devices for each in found if "no worker serves" not in str(waits(store, each.id))}
    assert shown == taken


# A device that another autotuner times --------------------------------------------------------------------------------


@pytest.fixture
def busy() -> Iterator[None]:
    """The CPU, with a lock as GPUs have it, which somebody holds."""
    name, kind = f"test-{uuid.uuid4()}", DEVICES["cpu"]

    def choose(wishes: Wishes) -> Chosen:
        return kind.choose(wishes)._replace(locks=(name,))

    DEVICES["cpu"] = kind._replace(choose=choose)
    try:
        with held([name], "a device", 0, lambda _: None):
            yield
    finally:
        del DEVICES["cpu"]


def worked_on(store: Store) -> int:
    """A sweep, after a worker has had it once."""
    request = queue.request_for(load_space("sdpa_cpu"), trials=1, patience_minutes=0.0)
    number = queue.submit(store, request)[0][0].id
    Worker(store, served("cpu"), cache_bytes=None).run(idle_exit=True)
    return number


def require_put_off(store: Store, number: int) -> None:
    found = sweeps.one(store, number)
    assert found.state == State.QUEUED
    assert "is timed by" in found.detail
    assert found.not_before is not None
    assert sweeps.due(store) == ()
    assert [each.health for each in device_health.every(store)] == ["healthy"]


@pytest.mark.usefixtures("busy")
def test_a_sweep_stays_in_the_queue_while_its_device_is_busy(store: Store) -> None:
    require_put_off(store, worked_on(store))


@pytest.mark.usefixtures("busy")
def test_a_device_that_is_too_busy_to_be_probed_is_not_sick(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machinery failed, and before the probe another autotuner took the device."""

    def fails(*_: object) -> object:
        raise InfrastructureError("the process is gone")

    monkeypatch.setattr(SweepRun, "go", fails)
    require_put_off(store, worked_on(store))
