"""The estimate of the time left: exact where a sweep is even, honest where it is not."""

import io
import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from autotuner.tuning.run.driver import Event, Judged, Started
from autotuner.tuning.run.waiting import Waited, Waiting
from autotuner.values.verdict import Verdict
from autotuner.views.progress import Progress, TimeLeft
from tests.helpers import simulated
from tests.helpers.recorded import CALIBRATION, rejected


def test_an_even_sweep_is_known_exactly() -> None:
    pace = TimeLeft(total=20, now=100.0)
    assert pace.left_s(107.0) == math.inf
    for count in range(1, 21):
        pace.judged(100.0 + 3 * count)
        assert pace.left_s(100.0 + 3 * count) == pytest.approx(3 * (20 - count))


# Kept runs ------------------------------------------------------------------------------------------------------------

RESULTS = Path(__file__).parent.parent.parent / "docs" / "results"


def kept_runs() -> Iterator[Any]:
    """The sweeps on GPUs whose results have what the estimate was told."""
    for path in sorted(RESULTS.glob("throughput_*.json")):
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


# What a person sees ---------------------------------------------------------------------------------------------------


class Heard:
    """A sweep as Progress hears of it, on a clock of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, trials: int, seconds: float = math.inf) -> None:
        self.now, self._written, self._judged = 1000.0, io.StringIO(), 0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        console = Console(file=self._written, width=200)
        self._shown = Progress(console, simulated.space(), simulated.DEVICE, simulated.conditions(), trials, seconds)
        self.start()

    def hear(self, event: Event) -> None:
        self._shown.hear(event)

    def start(self) -> None:
        calibration = CALIBRATION.model_copy(update={"baselines": ("fake",)})
        self._shown.hear(Started(study="s", judged=self._judged, calibration=calibration))

    def judge(self, count: int, seconds: float, verdict: Verdict = Verdict.INCORRECT) -> None:
        """`count` more trials, each after `seconds`."""
        for number in range(count):
            self.now += seconds
            self._judged += verdict.judges
            outcome = rejected(64, verdict)
            self._shown.hear(Judged(number=number, outcome=outcome, judged=self._judged, best=None))

    @property
    def said(self) -> str:
        return self._written.getvalue()

    @property
    def left(self) -> str:
        """What is said of the time left."""
        lines = [line for line in self._written.getvalue().splitlines() if " left" in line]
        return "about " + lines[-1].rsplit("about ", 1)[1]


def test_the_time_left_is_that_of_the_trials_or_of_the_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    trials = Heard(monkeypatch, trials=40)
    trials.judge(10, seconds=2.0)
    assert trials.left.startswith("about 60 s")
    trials.judge(10, seconds=2.0)
    assert trials.left.startswith("about 40 s")
    minutes = Heard(monkeypatch, trials=40, seconds=50.0)
    minutes.judge(10, seconds=2.0)
    assert minutes.left.startswith("about 30 s")


def test_waiting_for_a_quiet_machine_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = Heard(monkeypatch, trials=40)
    for _ in range(3):
        sweep.hear(Waiting(detail="make (pid 7) 98%", since_s=sweep.now))
        sweep.now += 100
    assert sweep.said.count("waiting for a quiet machine: make (pid 7) 98%; since") == 3
    sweep.hear(Waited(waited_s=300, detail="make (pid 7) 98%"))
    assert "goes on beside it: make (pid 7) 98%, after 300 s of waiting" in sweep.said
