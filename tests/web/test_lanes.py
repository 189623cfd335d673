"""What the timeline says each builder and each device did when, and how long it idled."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from autotuner.store import ListedTrial, SessionRecord, Store
from autotuner.views.drawings.lanes import Run, Stretch, runs_of
from autotuner.views.drawings.links import Links
from autotuner.views.drawings.timeline import runs, timeline
from autotuner.web.reader import Reader
from tests.helpers import simulated
from tests.helpers.driven import swept
from tests.helpers.inline_executor import InlineExecutor
from tests.helpers.recorded import CALIBRATION

NOON = datetime(2026, 11, 24, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def session(number: int, begins: float, ends: float | None, lane: int, builders: int) -> SessionRecord:
    return SessionRecord(
        id=number,
        study="s",
        started_at=at(begins),
        finished_at=None if ends is None else at(ends),
        calibration=CALIBRATION,
        environment={},
        host="here",
        pid=1,
        lane=lane,
        builders=builders,
    )


def trial(of: int, recorded: float, built: float | None, build: float, judging: float) -> ListedTrial:
    """`built`: when its build began. Half of the judging is the gate's."""
    half = judging / 2
    began = None if built is None else at(built)
    values: dict[str, Any] = {"number": 0, "session": of, "recorded_at": at(recorded), "build_s": build}
    return ListedTrial.model_construct(**values, check_s=half, measure_s=half, build_began=began)


def builds(run: Run) -> list[tuple[Stretch, ...]]:
    return [lane.stretches for lane in run.builders]


def test_builds_stand_where_they_began_and_builders_without_any_are_there_too() -> None:
    """The second build was over long before a device was free for it."""
    trials = [trial(1, 10, 0, 4, 4), trial(1, 20, 1, 4, 10), trial(1, 30, 5, 10, 2)]
    (run,) = runs_of([session(1, 0, 40, 0, 3)], trials)
    first = Stretch(0, 4, "build"), Stretch(5, 15, "build")
    assert builds(run) == [first, (Stretch(1, 5, "build"),), ()]
    assert run.builder_idle == pytest.approx(1 - (4 + 4 + 10) / (3 * 40))
    assert run.device_idle == pytest.approx(1 - (4 + 10 + 2) / 40)


def shown(store: Store, study: str) -> tuple[str, tuple[Run, ...], tuple[tuple[object, ...], ...]]:
    snapshot = Reader(store).study(study)
    figure, _ = timeline(snapshot, Links())
    every = runs_of(snapshot.sessions, snapshot.trials)
    return figure.note, every, tuple(tuple(cell.text for cell in row.cells) for row in figure.table.rows)


def test_a_driver_says_when_it_built_with_how_many_builders_for_which_devices(tmp_path: Path) -> None:
    with Store.open(str(tmp_path / "studies.db")) as store:
        before = datetime.now(UTC)
        study = swept(store, InlineExecutor(simulated.backend(), width=6, lanes=2), 40)
        snapshot = Reader(store).study(study)
        assert all(each.build_began is not None for each in snapshot.trials)
        assert all(before <= each.build_began <= each.recorded_at for each in snapshot.trials if each.build_began)
        note, (run,), rows = shown(store, study)
        assert (len(run.builders), len(run.devices)) == (1, 2)
        assert note.startswith("Idle: 2 devices for ")
        assert ", 1 builder for " in note
        assert [row[0] for row in rows] == ["builder 1", "all devices", "device 1", "device 2"]
        (line,) = runs((run,)).rows
        assert line.cells[7].text.startswith("1, idle ")
        assert line.cells[8].text.startswith("2, idle ")
