"""Who is told to work on behind the stream of the samples. What a look finds is made up."""

from collections.abc import Callable

from autotuner.devices.cuda.rest import BUSY_S, AfterBaseline, made_at_rest, still_busy

BURNS_S = 5 * BUSY_S


class Device:
    """What was launched is waited for at the next look."""

    def __init__(self) -> None:
        self._took = 0.0

    def burn(self) -> None:
        self._took = BURNS_S

    def own_work_s(self) -> float:
        took, self._took = self._took, 0.0
        return took


def at_rest() -> float:
    return 0.0


def stopped_once() -> Callable[[], float]:
    """The system stops the thread that asks at the first look, and not again."""
    looks = iter([BURNS_S])
    return lambda: next(looks, 0.0)


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
