"""What is not believed of a measurement: latencies below the floor and clocks that disagree."""

import pytest

from autotuner.race.arms import Clocks
from autotuner.race.plausible import MARGIN, clocks_disagree, floor_us, too_fast
from autotuner.values.outcome import Ceilings
from autotuner.values.verdict import Fault, Verdict
from tests.helpers.fake_line import FakeArm
from tests.helpers.racing import PROBLEM, race

# Plausibility -------------------------------------------------------------------------------------------------------


def test_a_latency_below_the_roofline_is_impossible() -> None:
    ceilings = Ceilings(flops=1e12, bytes=1e11)
    floor = floor_us(PROBLEM, ceilings, cold=False)
    assert floor == pytest.approx(1e6 * PROBLEM.flops / 1e12 / MARGIN)
    fault = too_fast(PROBLEM, 0.9 * floor, ceilings, cold=False)
    assert (fault.verdict, fault.code) == (Verdict.IMPOSSIBLE, "measure.floor")
    assert too_fast(PROBLEM, 1.1 * floor, ceilings, cold=False) is None
    assert too_fast(PROBLEM, 1e-9, None, cold=False) is None


def test_only_a_cold_forward_must_move_its_bytes() -> None:
    slow_memory = Ceilings(flops=1e15, bytes=1e6)
    assert floor_us(PROBLEM, slow_memory, cold=True) > 1000 * floor_us(PROBLEM, slow_memory, cold=False)


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
    assert (fault.verdict, fault.code) == (Verdict.IMPOSSIBLE, "measure.clocks")
    assert arm.asked == sorted(set(arm.asked))  # each try is longer than the one before


def test_clocks_that_agree_once_are_believed() -> None:
    assert clocks_disagree(TwoClocks(Clocks(1e-3, 5e-4), Clocks(1e-3, 0.98e-3))) is None
    assert clocks_disagree(TwoClocks(Clocks(15e-6, 6e-6))) is None  # within the resolution
    assert clocks_disagree(TwoClocks(None)) is None
