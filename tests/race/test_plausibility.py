"""What is not believed of a measurement: latencies below the floor, clocks that disagree, a disturbed machine."""

from __future__ import annotations

import contextlib
import itertools
import math
import random
from collections.abc import Callable, Sequence
from statistics import median
from types import SimpleNamespace

import pytest

from autotuner.race import thermometer
from autotuner.race.arms import Clocks
from autotuner.race.blocks import Blocks
from autotuner.race.race import MARGIN, clocks_disagree, floor_us, too_fast
from autotuner.race.thermometer import Drifted, Thermometer, take_calm, undisturbed
from autotuner.values.outcome import Ceilings
from autotuner.values.verdict import Fault, Verdict
from tests.helpers.fake_line import FakeArm
from tests.helpers.racing import PROBLEM, race, raced

# Plausibility -------------------------------------------------------------------------------------------------------


def test_a_latency_below_the_roofline_is_impossible() -> None:
    ceilings = Ceilings(flops=1e12, bytes=1e11)
    floor = floor_us(PROBLEM, ceilings, cold=False)
    assert floor == pytest.approx(1e6 * PROBLEM.flops / 1e12 / MARGIN)
    fault = too_fast(PROBLEM, 0.9 * floor, ceilings, cold=False)
    assert fault is not None
    assert (fault.verdict, fault.code) == (Verdict.IMPOSSIBLE, "measure.floor")
    assert too_fast(PROBLEM, 1.1 * floor, ceilings, cold=False) is None
    assert too_fast(PROBLEM, 1e-9, None, cold=False) is None


def test_an_impossible_race_is_a_reject() -> None:
    found = race(1e-3, ceilings=Ceilings(flops=1e12, bytes=1e11))
    assert isinstance(found, Fault)
    assert found.verdict == Verdict.IMPOSSIBLE


class TwoClocks(FakeArm):
    """An arm with a clock of the device beside the host's."""

    def __init__(self, *readings: Clocks | None) -> None:
        self._left = list(readings)
        self.asked: list[float] = []

    def clocks(self, seconds: float) -> Clocks | None:
        self.asked.append(seconds)
        return self._left.pop(0) if len(self._left) > 1 else self._left[0]


def test_work_that_is_hidden_from_the_devices_clock_is_found() -> None:
    arm = TwoClocks(Clocks(host=1e-3, device=5e-4))
    fault = clocks_disagree(arm)
    assert fault is not None
    assert (fault.verdict, fault.code) == (Verdict.IMPOSSIBLE, "measure.clocks")
    assert arm.asked == sorted(set(arm.asked))  # each try is longer than the one before


# The thermometer ----------------------------------------------------------------------------------------------------


CALM = Thermometer(calm_us=(100,), slow_us=(100,), drift=0.1)


class Takes:
    """Races beside which the baseline took so long, one after the other; the last one goes on."""

    def __init__(self, *baseline_us: float) -> None:
        self.taken: list[Blocks] = []
        self._left = list(baseline_us)

    def __call__(self) -> Blocks:
        us = self._left.pop(0) if len(self._left) > 1 else self._left[0]
        times = itertools.cycle([0.5e-6 * us, 1e-6 * us, 9e-6 * us])  # the median counts
        self.taken.append(raced([lambda: next(times), lambda: 1e-6], 3))
        return self.taken[-1]


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that the thermometer makes, which are not waited for."""
    made: list[float] = []
    monkeypatch.setattr(thermometer, "time", SimpleNamespace(sleep=made.append))
    return made


@pytest.mark.parametrize("us", [91, 100, 109])
def test_a_calm_measurement_is_taken_once(pauses: list[float], us: float) -> None:
    takes = Takes(us)
    assert undisturbed(takes, CALM) is takes.taken[0]
    assert len(takes.taken) == 1
    assert not pauses


@pytest.mark.parametrize("us", [80, 120])
def test_a_disturbed_measurement_is_taken_again_after_a_pause(pauses: list[float], us: float) -> None:
    takes = Takes(us, 105)
    assert undisturbed(takes, CALM) is takes.taken[1]
    assert len(takes.taken) == 2
    assert sum(pauses) > 0


@pytest.mark.usefixtures("pauses")
def test_a_race_on_a_disturbed_machine_gives_no_measurement() -> None:
    found = race(77, baseline_us=(150.0,))
    assert isinstance(found, Fault)
    assert found.code == "measure.drift"


# A device that another program has in turns: the baseline's samples may be as short as ever -------------------------


class Turns:
    """What a track says of its device, one look after the other; the last one goes on."""

    def __init__(self, *shared: bool) -> None:
        self._left = list(shared)

    def __call__(self) -> str | None:
        shared = self._left.pop(0) if len(self._left) > 1 else self._left[0]
        return "another program has the GPU in turns" if shared else None


@pytest.mark.usefixtures("pauses")
def test_a_race_waits_for_a_device_that_is_shared_and_is_not_run_meanwhile() -> None:
    takes = Takes(100)
    assert undisturbed(takes, CALM._replace(shared=Turns(True, False))) is takes.taken[0]
    assert len(takes.taken) == 1


@pytest.mark.usefixtures("pauses")
def test_a_race_whose_device_is_shared_at_its_end_is_run_again() -> None:
    takes = Takes(100)
    assert undisturbed(takes, CALM._replace(shared=Turns(False, True, False))) is takes.taken[1]


def test_blocks_of_a_heat_on_a_shared_device_are_void() -> None:
    blocks = raced([lambda: 100e-6, lambda: 80e-6], 0)
    take_calm(blocks, 8, CALM._replace(shared=Turns(True, True, False)))
    assert (len(blocks), blocks.discarded) == (8, 2)


# Blocks of a heat ---------------------------------------------------------------------------------------------------


def calm(baseline: Sequence[float], count: int) -> Blocks:
    """The blocks that count, of a baseline that takes these microseconds one after another, then 100."""
    left = list(baseline)
    blocks = raced([lambda: 1e-6 * (left.pop(0) if left else 100.0), lambda: 80e-6], 0)
    take_calm(blocks, count, CALM)
    return blocks


def test_a_block_whose_baseline_is_off_is_void_and_taken_again() -> None:
    blocks = calm([100, 150, 104, 60, 96], 8)
    assert (len(blocks), blocks.discarded) == (8, 2)
    assert all(90e-6 < seconds < 110e-6 for seconds in blocks.seconds[0][0])


def test_a_heat_with_fewer_calm_blocks_than_void_ones_is_given_up() -> None:
    with pytest.raises(Drifted, match=r"took 150\.0 us beside the variant, 100\.0 us at calibration"):
        calm([100, 100, *[150] * 20], 8)


def test_void_blocks_do_not_make_a_variant_look_faster() -> None:
    """A disturbance hits either side of a block, for a third of the samples. The median of what is left is off by
    little, and not in the variant's favour."""
    found = []
    for seed in range(30):
        draw = random.Random(seed)

        def sample(us: float, draw: random.Random = draw) -> Callable[[], float]:
            return lambda: 1e-6 * us * math.exp(draw.gauss(0, 0.005) + 0.4 * (draw.random() < 0.3))

        blocks = raced([sample(100), sample(80)], 0)
        with contextlib.suppress(Drifted):
            take_calm(blocks, 24, CALM)
            found.append(median(blocks.log_ratios(1, 0)) - math.log(0.8))
    assert len(found) > 10
    assert min(found) > -0.01
    assert abs(median(found)) < 0.01
