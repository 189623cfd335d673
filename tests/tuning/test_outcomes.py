"""What is known of the incumbent: by its own race, which it was promoted for, and by those of others against it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from autotuner.race.arms import Tracks
from autotuner.run.line import Passed
from autotuner.store import Store
from autotuner.tuning.run.driver import Budget, Driver
from autotuner.tuning.run.outcomes import Outcomes
from autotuner.tuning.run.plan import Plan
from autotuner.values.conditions import Conditions
from autotuner.values.gate_report import GateReport
from autotuner.values.outcome import Artifact, Outcome, Say, Stop
from autotuner.values.variant import Variant
from autotuner.values.verdict import Verdict
from tests.helpers import simulated
from tests.helpers.fake_line import FakeLine, Truth
from tests.helpers.inline_executor import InlineExecutor
from tests.helpers.recorded import measured, measurement, raced, raced_out
from tests.helpers.simulated_finals import DEFAULT, SPACE

SLOWED = 1.08
"""By how much the baseline is slower beside the first variant: less than the thermometer refuses."""


def lost(tile: int, us: float, incumbent_us: float) -> Outcome:
    """Raced out against the artifact of tile 16, which took so long there; the baseline takes 100 us."""
    found = raced(measurement(us), 16, math.log(us / incumbent_us), Stop.SLOWER)
    return raced_out(tile, us).model_copy(update={"measurement": found})


def known(*others: Outcome) -> float:
    """t_incumbent / t_baseline of tile 16, which took 40 us in its own race."""
    outcomes = Outcomes(lambda number: others[number - 1])
    leader = measured(16, 40.0)
    assert leader.artifact is not None
    outcomes.add(0, leader.model_copy(update={"artifact": leader.artifact.model_copy(update={"path": ""})}))
    for number, outcome in enumerate(others, start=1):
        outcomes.add(number, outcome)
    (ratio,) = outcomes.opponent_ratios()
    return math.exp(ratio)


def test_races_against_it_correct_what_its_own_has_flattered() -> None:
    assert known() == pytest.approx(0.4)
    others = [lost(tile, 60.0, us) for tile, us in ((32, 50.0), (64, 50.5), (8, 49.5), (128, 90.0))]
    assert known(*others) == pytest.approx(0.5)  # one that was disturbed decides nothing


class Slowed(FakeLine):
    """The baseline is slower beside the default variant, when that is raced."""

    def check(self, artifact: Artifact, conditions: Conditions, say: Say, passed: Passed | None = None) -> GateReport:
        self._slows = artifact.variant.digest == DEFAULT
        return super().check(artifact, conditions, say, passed)

    def tracks(self, conditions: Conditions) -> Tracks:
        calm, self._baseline_us = self._baseline_us, self._baseline_us * (SLOWED if self._slows else 1)
        try:
            return super().tracks(conditions)
        finally:
            self._baseline_us = calm


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with closing(Store.open(str(tmp_path / "studies.db"))) as opened:
        yield opened


def test_one_flattered_incumbent_does_not_flatter_all_that_lose_to_it(store: Store) -> None:
    def truth(variant: Variant) -> Truth:
        return Truth(us=40.0 if variant.digest == DEFAULT else 44.0)

    executor = InlineExecutor(Slowed(truth, noise=0.004))
    driver = Driver(store, executor, Plan(SPACE, simulated.DEVICE, simulated.conditions()))
    driver.run(Budget(trials=16))
    found = [outcome for _, outcome in store.outcomes(driver.name)]
    assert found[0].objective == pytest.approx(math.log(0.4 / SLOWED), abs=0.01)
    later = [outcome for outcome in found[4:] if outcome.verdict == Verdict.RACED_OUT]
    assert len(later) > 5
    for outcome in later:
        assert outcome.objective == pytest.approx(math.log(0.44), abs=0.02)
