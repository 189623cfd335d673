"""What a person sees of a sweep and its finals on a terminal of 80 columns: two lines that tick, events above them. And
the time left, which is exact where a sweep is even and honest where it is not."""

import io
import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from autotuner.tuning.run.driver import Judged, Started, UnderWay
from autotuner.tuning.run.waiting import Waited, Waiting
from autotuner.values.outcome import Outcome
from autotuner.values.verdict import Verdict
from autotuner.views.progress import FinalsProgress, Progress, TimeLeft
from tests.helpers import simulated
from tests.helpers.recorded import CALIBRATION, measured, rejected

WIDTH = 80


class Seen:
    """A display on a terminal, or on a wider file, that keeps what was printed above the live lines."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self._written = 1000.0, io.StringIO()
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        self.console = Console(file=self._written, width=WIDTH, force_terminal=True, color_system=None)
        self.file = Console(file=self._written, width=200)

    def begun(self, console: Console, trials: int, **more: float) -> Progress:
        """A sweep of so many variants that has begun."""
        shown = Progress(console, simulated.space(), simulated.DEVICE, simulated.conditions(), trials=trials, **more)
        calibration = CALIBRATION.model_copy(update={"baselines": ("fake",)})
        shown.hear(Started(study="s", judged=0, calibration=calibration))
        return shown

    @property
    def above(self) -> str:
        return " ".join(self._written.getvalue().split())

    @property
    def left(self) -> str:
        """What is said of the time left."""
        return "about " + self.above.rpartition(" left")[0].rpartition("about ")[2]

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
    """A sweep of twenty variants, and of finals of a minute."""
    return seen.begun(seen.console, 20, finals_s=60.0)


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


def test_after_the_last_variant_no_time_is_said_to_be_left(seen: Seen) -> None:
    shown = seen.begun(seen.file, 3)
    for number in range(3):
        shown.hear(judged(number, rejected(64)))
    assert seen.above.endswith("all are judged")


def test_finals_say_about_how_long_since_the_one_to_use_goes_to_its_proof(seen: Seen) -> None:
    with FinalsProgress(seen.console, 90.0):
        pass
    assert "about 1 min 30 s" in seen.above
    assert "at most" not in seen.above


def test_waiting_for_a_quiet_machine_is_told(seen: Seen) -> None:
    shown = seen.begun(seen.file, 40)
    for _ in range(3):
        shown.hear(Waiting(detail="make (pid 7) 98%", since_s=seen.now))
        seen.now += 100
    assert seen.above.count("waiting for a quiet machine: make (pid 7) 98%; since") == 3
    shown.hear(Waited(waited_s=300, detail="make (pid 7) 98%"))
    assert "goes on beside it: make (pid 7) 98%, after 300 s of waiting" in seen.above


# The time left --------------------------------------------------------------------------------------------------------


def test_the_time_left_is_that_of_the_trials_or_of_the_minutes(seen: Seen) -> None:
    for seconds, left in ((math.inf, ["60 s", "40 s"]), (50.0, ["30 s"])):
        shown = seen.begun(seen.file, 40, seconds=seconds)
        for place, expected in enumerate(left):
            for number in range(10 * place, 10 * place + 10):
                seen.now += 2.0
                shown.hear(judged(number, rejected(64)))
            assert seen.left == f"about {expected}"


def test_an_even_sweep_is_known_exactly() -> None:
    pace = TimeLeft(total=20, now=100.0)
    assert pace.left_s(107.0) == math.inf
    for count in range(1, 21):
        pace.judged(100.0 + 3 * count)
        assert pace.left_s(100.0 + 3 * count) == pytest.approx(3 * (20 - count))


def kept_runs() -> Iterator[Any]:
    """The sweeps on GPUs whose results have what the estimate was told."""
    for path in sorted((Path(__file__).parents[2] / "docs" / "results").glob("throughput_*.json")):
        document = json.loads(path.read_text())
        runs = document.get("by_devices") or {"1": document.get("autotuner", document)}
        for lanes, run in runs.items():
            if "answers" in run and document.get("device", "").startswith("NVIDIA"):
                yield pytest.param(run["answers"], id=f"{path.stem}-{lanes}")


@pytest.mark.parametrize("columns", list(kept_runs()))
def test_at_a_quarter_of_a_kept_run_the_estimate_was_within_30_per_cent(columns: dict[str, list[Any]]) -> None:
    answers = list(zip(columns["at_s"], columns["promoted"], strict=True))
    pace = TimeLeft(len(answers))
    for answer in answers[: len(answers) // 4]:
        pace.judged(*answer)
    at = answers[len(answers) // 4 - 1][0]
    assert 0.7 <= pace.left_s(at) / (answers[-1][0] - at) <= 1.3
