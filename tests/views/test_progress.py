"""What a person sees of a sweep and its finals on a terminal of 80 columns: two lines that tick, events above them."""

import io
import time

import pytest
from rich.console import Console

from autotuner.tuning.run.driver import Judged, Started, UnderWay
from autotuner.values.outcome import Outcome
from autotuner.values.verdict import Verdict
from autotuner.views.progress import FinalsProgress, Progress
from tests.helpers import simulated
from tests.helpers.recorded import CALIBRATION, measured, rejected

WIDTH = 80


class Seen:
    """A display on a terminal that keeps what was printed above the live lines."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self._written = 1000.0, io.StringIO()
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        self.console = Console(file=self._written, width=WIDTH, force_terminal=True, color_system=None)

    @property
    def above(self) -> str:
        return " ".join(self._written.getvalue().split())

    def foot(self, shown: Progress | FinalsProgress) -> list[str]:
        """The live lines."""
        options = self.console.options
        lines = [str(each) for each in shown.__rich_console__(self.console, options)]
        assert max(map(len, lines)) < WIDTH
        return lines


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    return Seen(monkeypatch)


@pytest.fixture
def sweep(seen: Seen) -> Progress:
    """A sweep of twenty variants that has begun, and of finals of a minute."""
    shown = Progress(
        seen.console, simulated.space(), simulated.DEVICE, simulated.conditions(), trials=20, finals_s=60.0
    )
    calibration = CALIBRATION.model_copy(update={"baselines": ("fake",)})
    shown.hear(Started(study="s", judged=0, calibration=calibration))
    return shown


def judged(number: int, outcome: Outcome, best: float | None = None) -> Judged:
    return Judged(number=number, outcome=outcome, judged=number + 1, best=best)


def test_it_ticks_between_events(seen: Seen, sweep: Progress) -> None:
    sweep.hear(UnderWay(building=(1, 2), judging=(0,), racing=False))
    assert seen.foot(sweep)[0] == "building 1, 2, judging 0; 0 s"
    seen.now += 12
    assert seen.foot(sweep)[0] == "building 1, 2, judging 0; 12 s"
    sweep.hear(UnderWay(building=(), judging=(), racing=True))
    assert seen.foot(sweep)[0].startswith("timing the best against itself")


def test_the_foot_says_how_far_it_is_the_best_the_causes_and_the_time_left(seen: Seen, sweep: Progress) -> None:
    for number in range(10):
        seen.now += 6
        if number == 3:
            sweep.hear(judged(number, measured(16, 50.0), best=-0.6931))
        else:
            sweep.hear(judged(number, rejected(64), best=-0.6931 if number > 3 else None))
    first, second = seen.foot(sweep)
    assert "rejected: 9 incorrect" in first
    assert second.startswith("10/20 ")
    assert "best 2.000x SDPA" in second
    assert second.endswith("about 2 min left with finals")  # a minute for ten variants, and one for the finals
    assert "━" in second


def test_events_of_interest_stand_above_and_the_others_do_not(seen: Seen, sweep: Progress) -> None:
    """A new best, the first reject of each kind, and every fault that is not the variant's."""
    lost = rejected(64, Verdict.INFRA_ERROR, "process.lost")
    sweep.hear(judged(0, measured(16, 50.0), best=-0.6931))
    sweep.hear(judged(1, rejected(32), best=-0.6931))
    sweep.hear(judged(2, rejected(64), best=-0.6931))
    sweep.hear(judged(3, measured(8, 90.0), best=-0.6931))
    sweep.hear(judged(4, lost, best=-0.6931))
    sweep.hear(judged(5, lost, best=-0.6931))
    shown = [number for number in range(6) if f"trial {number}:" in seen.above]
    assert shown == [0, 1, 4, 5]
    assert "max error 0.5" in seen.above  # why a trial was lost
    first, _ = seen.foot(sweep)
    assert "not judged: 2 machine fault" in first
    assert "rejected: 2 " in first


def test_after_the_last_variant_no_time_is_said_to_be_left() -> None:
    written = io.StringIO()
    shown = Progress(
        Console(file=written, width=200), simulated.space(), simulated.DEVICE, simulated.conditions(), trials=3
    )
    calibration = CALIBRATION.model_copy(update={"baselines": ("fake",)})
    shown.hear(Started(study="s", judged=0, calibration=calibration))
    for number in range(3):
        shown.hear(judged(number, rejected(64)))
    assert written.getvalue().rstrip().endswith("all are judged")


def test_finals_say_about_how_long_since_the_one_to_use_goes_to_its_proof(seen: Seen) -> None:
    with FinalsProgress(seen.console, 90.0):
        pass
    assert "about 1 min 30 s" in seen.above
    assert "at most" not in seen.above
