"""Who is told to work on behind the stream of the samples. A thread that burns stands for a kernel on another one."""

import threading
import time
from collections.abc import Callable

import pytest

from autotuner.devices.cuda.rest import BUSY_S, AfterBaseline, made_at_rest, still_busy
from autotuner.race.arms import ArmError
from autotuner.values.verdict import Verdict

BURNS_S = 5 * BUSY_S


class Device:
    """Work is a thread that burns, for some time yet when it is waited for."""

    def __init__(self) -> None:
        self._work: list[tuple[threading.Thread, threading.Event]] = []

    def burn(self) -> None:
        waited_for = threading.Event()

        def spin() -> None:
            while not waited_for.is_set():
                pass
            ends = time.monotonic() + BURNS_S
            while time.monotonic() < ends:
                pass

        self._work.append((threading.Thread(target=spin, daemon=True), waited_for))
        self._work[-1][0].start()

    def own_work_s(self) -> float:
        if not self._work:
            return 0.0
        started = time.perf_counter()
        while self._work:
            thread, waited_for = self._work.pop()
            waited_for.set()
            thread.join()
        return time.perf_counter() - started


def at_rest() -> float:
    return 0.0


def stopped_once() -> Callable[[], float]:
    """The system stops the thread that asks at the first look, and not again."""
    looks = iter([BURNS_S])
    return lambda: next(looks, 0.0)


def test_who_burns_behind_every_capture_is_told() -> None:
    device = Device()
    with pytest.raises(ArmError) as caught:
        made_at_rest(device.burn, device.own_work_s)
    assert (caught.value.fault.verdict, caught.value.fault.code) == (Verdict.IMPOSSIBLE, "G7.rest")


def test_what_burns_once_is_waited_out() -> None:
    device, made = Device(), list[int]()

    def make() -> int:
        if not made:
            device.burn()
        made.append(len(made))
        return made[-1]

    assert made_at_rest(make, device.own_work_s) == 1
    assert made == [0, 1]


def test_a_host_that_is_stopped_at_one_look_accuses_nobody() -> None:
    assert made_at_rest(lambda: "made", stopped_once()) == "made"
    assert still_busy(lambda: None, stopped_once()) is None
    after, looks = AfterBaseline(), stopped_once()
    for _ in range(6):
        after.ask(looks)
    assert after.busy is None


def test_what_goes_on_after_each_forward_is_told() -> None:
    device = Device()
    device.burn()
    assert still_busy(device.burn, device.own_work_s) is not None
    assert still_busy(lambda: None, at_rest) is None


def test_who_burns_beside_many_samples_of_the_baseline_is_told() -> None:
    device, after = Device(), AfterBaseline()
    for sample in range(6):
        if sample % 2:
            device.burn()
        after.ask(device.own_work_s)
    assert after.busy is not None
    after.forget()
    assert after.busy is None
