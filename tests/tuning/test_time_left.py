"""The estimate of the time left: exact where a sweep is even, honest where it is not."""

from __future__ import annotations

import io
import json
import math
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from rich.console import Console

from autotuner.tuning.run.calm import Calm, Protest, Waiting
from autotuner.tuning.run.driver import Event, Judged, Started
from autotuner.tuning.run.time_left import TimeLeft
from autotuner.values.outcome import Outcome
from autotuner.values.verdict import Verdict
from autotuner.views.progress import Progress, costs
from tests.helpers import simulated
from tests.helpers.recorded import CALIBRATION, deduplicated, measured, raced_out, rejected


def test_an_even_sweep_is_known_exactly() -> None:
    pace = TimeLeft(total=20, now=100.0)
    assert pace.left_s(107.0) == math.inf
    for count in range(1, 21):
        pace.judged(100.0 + 3 * count, busy_s=2.0)
        assert pace.left_s(100.0 + 3 * count) == pytest.approx(3 * (20 - count))


def test_time_goes_on_between_two_answers_and_never_below_nothing() -> None:
    pace = TimeLeft(total=4)
    pace.judged(10.0, busy_s=10.0)
    assert [pace.left_s(now) for now in (10.0, 16.0, 100.0)] == [30.0, 24.0, 0.0]


def test_what_was_judged_before_is_not_to_be_judged_again() -> None:
    pace = TimeLeft(total=10, before=8)
    pace.judged(5.0, busy_s=4.0)
    assert pace.left_s(5.0) == pytest.approx(5.0)
    pace.judged(10.0, busy_s=4.0)
    assert pace.left_s(10.0) == 0.0


def test_the_filling_of_a_pipeline_does_not_come_again() -> None:
    beside, turns = TimeLeft(total=11, beside=4), TimeLeft(total=11)
    for pace in (beside, turns):
        for count in range(6):
            pace.judged(60.0 + count, busy_s=1.0)
    assert beside.left_s(65.0) == pytest.approx(5.0)
    assert turns.left_s(65.0) == pytest.approx(5 * 65 / 6)


def test_lanes_share_the_work() -> None:
    pace = TimeLeft(total=10, lanes=2, beside=8)
    for number in range(6):
        pace.judged(1.0 + number // 2, busy_s=1.0)
    assert pace.left_s(3.0) == pytest.approx(4 * 0.5, rel=0.05)


def test_nothing_is_judged_before_it_is_built() -> None:
    pace = TimeLeft(total=12, lanes=4, beside=2)
    for _ in range(2):
        pace.judged(10.0, busy_s=0.1, build_s=10.0)
    assert pace.left_s(10.0) == pytest.approx(10 * 10.0 / 2)


def test_the_dear_promotions_at_the_beginning_are_not_taken_for_the_rule() -> None:
    """An average would say 20 s a variant, a rule that all are like the last ones 3 s."""
    pace, now = TimeLeft(total=100), 0.0
    for number in range(10):
        promoted = number in (0, 1, 4)
        now += 60.0 if promoted else 3.0
        pace.judged(now, busy_s=60.0 if promoted else 3.0, promoted=promoted)
    assert 90 * 3.0 + 3 * 60.0 < pace.left_s(now) < 90 * 10.0


class Job(NamedTuple):
    """A variant's seconds in a builder and on a device."""

    build: float
    busy: float
    promoted: bool


class Machine(NamedTuple):
    """Where a sweep is simulated; seconds of a build, a full measurement, one that is raced out, a promotion."""

    builders: int
    lanes: int
    turns: bool
    build: float
    full: float
    short: float
    promotion: float


CPU = Machine(builders=2, lanes=1, turns=True, build=4.0, full=6.0, short=1.5, promotion=15.0)
GPU = Machine(builders=15, lanes=1, turns=False, build=2.7, full=0.6, short=0.2, promotion=2.5)
GPUS = GPU._replace(builders=60, lanes=4)
FEW_BUILDERS = GPUS._replace(builders=8)

Sweep = list[tuple[float, Job]]
"""When each variant was judged, in that order."""


def jobs(machine: Machine, count: int, draw: random.Random) -> Iterator[Job]:
    """One in five is rejected at once or a duplicate; promotions come as in random order, and some more."""
    for number in range(count):
        build = machine.build * draw.uniform(0.4, 1.6)
        if draw.random() < 1 / (number + 1) + 0.03:
            yield Job(build, machine.promotion, promoted=True)
        elif draw.random() < 0.2:
            yield Job(build, machine.short * draw.choice((0.0, 0.3)), promoted=False)
        else:
            usual = machine.full if draw.random() < 0.4 else machine.short
            yield Job(build, usual * draw.uniform(0.4, 1.6), promoted=False)


def in_turns(machine: Machine, todo: list[Job]) -> Sweep:
    """Four builds of each builder, then their judging."""
    now, found = 0.0, Sweep()
    for first in range(0, len(todo), 4 * machine.builders):
        turn = todo[first : first + 4 * machine.builders]
        builders = [now] * machine.builders
        for job in turn:
            builders[builders.index(min(builders))] += job.build
        now = max(builders)
        for job in turn:
            now += job.busy
            found.append((now, job))
    return found


def in_a_pipeline(machine: Machine, todo: list[Job]) -> Sweep:
    """Builds run beside the devices, as long as not too many variants are in flight; a device needs 3 s to start."""
    builders, lanes, found = [0.0] * machine.builders, [3.0] * machine.lanes, Sweep()
    width = machine.builders + 2 * machine.lanes
    for number, job in enumerate(todo):
        proposed = sorted(at for at, _ in found)[number - width] if number >= width else 0.0
        builder, lane = builders.index(min(builders)), lanes.index(min(lanes))
        builders[builder] = max(builders[builder], proposed) + job.build
        lanes[lane] = max(lanes[lane], builders[builder]) + job.busy
        found.append((lanes[lane], job))
    return sorted(found)


def ratio_at_a_quarter(machine: Machine, count: int, draw: random.Random) -> float:
    """The estimate when a quarter was judged over what it took from then on."""
    todo = list(jobs(machine, count, draw))
    sweep = in_turns(machine, todo) if machine.turns else in_a_pipeline(machine, todo)
    pace = TimeLeft(count, lanes=machine.lanes, beside=0 if machine.turns else machine.builders)
    for at, job in sweep[: count // 4]:
        pace.judged(at, job.busy, job.build, job.promoted)
    now = sweep[count // 4 - 1][0]
    return pace.left_s(now) / (sweep[-1][0] - now)


@pytest.mark.parametrize(
    ("machine", "count", "share"),
    [
        (CPU, 60, 0.8),
        (CPU, 120, 0.9),
        (GPU, 120, 0.7),
        (GPU, 400, 0.95),
        (GPUS, 400, 0.95),
        (FEW_BUILDERS, 120, 0.95),
    ],
)
def test_at_a_quarter_the_estimate_is_within_30_per_cent(machine: Machine, count: int, share: float) -> None:
    """In nearly all of 200 simulated sweeps, and right in the middle."""
    draw = random.Random(4)
    ratios = sorted(ratio_at_a_quarter(machine, count, draw) for _ in range(200))
    assert sum(0.7 <= ratio <= 1.3 for ratio in ratios) / len(ratios) >= share
    assert 0.85 <= ratios[100] <= 1.15


# Kept runs ------------------------------------------------------------------------------------------------------------

RESULTS = Path(__file__).parent.parent.parent / "docs" / "results"


def kept_runs() -> Iterator[Any]:
    """The sweeps on GPUs whose results have what the estimate was told: devices, and the run's document."""
    for path in sorted(RESULTS.glob("throughput_*.json")):
        document = json.loads(path.read_text())
        runs = document.get("by_devices") or {"1": document.get("autotuner", document)}
        for lanes, run in runs.items():
            if "answers" in run and document.get("device", "").startswith("NVIDIA"):
                yield pytest.param(int(lanes), run, id=f"{path.stem}-{lanes}")


@pytest.mark.parametrize(("lanes", "run"), list(kept_runs()))
def test_at_a_quarter_of_a_kept_run_the_estimate_was_within_30_per_cent(lanes: int, run: dict[str, Any]) -> None:
    columns = run["answers"]
    answers = list(zip(*(columns[name] for name in ("at_s", "busy_s", "build_s", "promoted")), strict=True))
    pace = TimeLeft(len(answers), lanes=lanes, beside=run["cpus"] - lanes)
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


def test_lost_trials_and_a_new_calibration_cost_time_but_are_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = Heard(monkeypatch, trials=20)
    sweep.judge(5, seconds=2.0)
    sweep.judge(3, seconds=2.0, verdict=Verdict.INFRA_ERROR)
    sweep.now += 4.0
    sweep.start()
    sweep.judge(5, seconds=2.0)
    assert sweep.left.startswith("about 30 s")


@pytest.mark.parametrize(
    ("outcome", "promoted"),
    [
        (measured(1, 50), True),
        (raced_out(1, 50), False),
        (deduplicated(2, measured(1, 50)), False),
        (rejected(1), False),
    ],
    ids=["measured", "raced out", "deduplicated", "rejected"],
)
def test_what_a_variant_cost_is_split(outcome: Outcome, promoted: bool) -> None:
    found = outcome.model_copy(update={"seconds": {"build": 3.0, "check": 0.5, "measure": 1.0, "soak": 0.25}})
    assert costs(found) == (1.75, 3.0, promoted)
    assert costs(outcome.model_copy(update={"seconds": {}}))[:2] == (0, 0.0)


def test_waiting_for_a_calm_machine_is_told_and_does_not_count_as_work(monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = Heard(monkeypatch, trials=40)
    sweep.judge(10, seconds=2.0)
    assert "wait" not in sweep.said
    for _ in range(3):
        sweep.hear(Waiting(detail="make (pid 7) 98%", since_s=sweep.now))
        sweep.now += 100
    assert sweep.said.count("waiting for a calm machine: make (pid 7) 98%; since") == 3
    sweep.hear(Calm(waited_s=300))
    sweep.judge(10, seconds=2.0)
    assert sweep.left.startswith("about 40 s")
    assert "waited 300 s" in sweep.said


def test_protest_says_what_becomes_of_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = Heard(monkeypatch, trials=40)
    sweep.hear(Protest(detail="make (pid 7) 98%", waited_s=600))
    assert "marked as disturbed and does not count" in sweep.said
    sweep.judge(1, seconds=2.0, verdict=Verdict.DISTURBED)
    assert "disturbed G2.T1" in sweep.said
    assert "rejected: disturbed" not in sweep.said


def test_what_the_machine_did_wrong_is_told_and_what_the_variant_did_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = Heard(monkeypatch, trials=40)
    for verdict in (Verdict.INFRA_ERROR, Verdict.INCORRECT):
        sweep.judge(1, seconds=2.0, verdict=verdict)
    fault = rejected(64, Verdict.INFRA_ERROR).fault
    assert fault is not None
    infra, incorrect = (line for line in sweep.said.splitlines() if fault.code in line)
    assert fault.detail.splitlines()[0] in infra
    assert fault.detail.splitlines()[0] not in incorrect
