"""Replays of recorded spaces (benchmarks/search/replay.py): reading, scoring, the virtual clock, and whole searches."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.search import replay as replay_command
from benchmarks.search import replay_pages
from benchmarks.search.replay_score import Axis, Trace, Yardstick
from benchmarks.search.replay_spaces import Recorded, read

ROOT = Path(__file__).parent.parent.parent
DATA = ROOT / "tests" / "data" / "replay"
MADE_UP = DATA / "made_up.json"


@pytest.fixture(scope="module")
def recorded() -> Recorded:
    return read(MADE_UP)


@pytest.fixture(scope="module")
def yardstick(recorded: Recorded) -> Yardstick:
    return Yardstick(recorded.ms, recorded.cost)


# Scoring ------------------------------------------------------------------------------------------------------------


def kept_traces(recorded: Recorded, charged: bool) -> list[Trace]:
    """Those of traces.json; sequential searches."""
    found = []
    for each in json.loads((DATA / "traces.json").read_text())["traces"]:
        rows, sampler = np.array(each["rows"]), np.array(each["sampler"]) * charged
        ends = np.cumsum(recorded.cost[rows]) + sampler
        found.append(Trace(rows, ends, np.diff(ends, prepend=0.0), sampler))
    return found


@pytest.mark.parametrize(
    ("expected", "axis", "charged"),
    [
        ("time", "time", True),
        ("time", "clock", True),
        ("time_of_a_free_sampler", "time", False),
        ("evaluations", "evaluations", True),
    ],
)
def test_scores_are_those_of_the_definition(
    recorded: Recorded, yardstick: Yardstick, expected: str, axis: Axis, charged: bool
) -> None:
    kept = json.loads((DATA / "traces.json").read_text())
    score, _ = yardstick.score(kept_traces(recorded, charged), axis)
    assert score.p == pytest.approx(kept["expected"][expected]["p"], abs=1e-6)
    assert score.within == kept["expected"][expected]["within"]
    assert score.low < score.p < score.high
    assert yardstick.evaluations == kept["budget"]["evaluations"]
    assert yardstick.seconds == pytest.approx(kept["budget"]["seconds"])


# Whole searches -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_command_keeps_what_it_can_score_again(tmp_path: Path) -> None:
    def command(*more: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-m", replay_command.__name__, str(MADE_UP), *["--sampler", "random", "--seeds", "2"]]
        return subprocess.run([*line, *more], cwd=ROOT, capture_output=True, text=True, check=False)

    folder, result, figure = tmp_path / "kept", tmp_path / "replay.json", tmp_path / "replay.svg"
    first = command("--jobs", "1", "--keep", str(folder), "--json", str(result), "--figure", str(figure))
    assert first.returncode == 0, first.stderr
    second = command("--kept", str(folder))
    assert second.stdout == first.stdout
    kept = json.loads(result.read_text())
    assert kept["rows"][0]["time"]["p"] == pytest.approx(kept["means"][0]["time"]["p"])
    assert kept["command"].startswith("python -m benchmarks.search.replay made_up.json --sampler random")
    assert "<svg" in figure.read_text()
    assert f"**{kept['means'][0]['time']['p']:.3f}**" in replay_pages.section(kept, figure.name)
    third = command("--seeds", "3", "--kept", str(folder))
    assert third.returncode == 1
    assert "2 searches; expected 3" in third.stderr
