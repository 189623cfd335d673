"""A worker whose device another autotuner of the machine times: that is no fault of the sweep, nor of the device."""

import uuid
from collections.abc import Iterator

import pytest

from autotuner.devices import DEVICES, Chosen, Wishes
from autotuner.jobs import queue
from autotuner.jobs.sweep_run import SweepRun
from autotuner.jobs.worker import Worker, served
from autotuner.store import Store, device_health, sweeps
from autotuner.tuning.device_lock import held
from autotuner.tuning.workbench import load_space
from autotuner.values.errors import InfrastructureError
from autotuner.values.sweep import State


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
    number = queue.submit(store, request)[0].id
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
