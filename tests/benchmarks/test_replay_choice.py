"""The choice of the sampler's constants by the spaces that are not left out (benchmarks/search/replay_choice.py)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from autotuner.search.settings import DEFAULT
from benchmarks.search import choice_pages, replay_choice
from benchmarks.search.replay_choice import (
    AS_IT_IS,
)
from benchmarks.search.replay_spaces import Recorded, read, write_t4

ROOT = Path(__file__).parent.parent.parent
MADE_UP = ROOT / "tests" / "data" / "replay" / "made_up.json"


@pytest.fixture(scope="module")
def recorded() -> Recorded:
    return read(MADE_UP)


# Searches -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_command_writes_what_the_page_shows(recorded: Recorded, tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("one.json", "two.json")]
    for path in paths:
        write_t4(recorded, path)

    def command(*more: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-m", replay_choice.__name__, *map(str, paths), "--seeds", "2", "--in-flight", "1"]
        return subprocess.run([*line, *more], cwd=ROOT, capture_output=True, text=True, check=False)

    result = tmp_path / "choice.json"
    done = command("--candidate", "starts anywhere", "--free-sampler", "--json", str(result))
    assert done.returncode == 0, done.stderr
    document = json.loads(result.read_text())
    assert list(document["candidates"]) == [AS_IT_IS, "starts anywhere"]
    assert document["candidates"]["starts anywhere"] == {
        "start_candidates": {"now": DEFAULT.start_candidates, "tried": 1}
    }
    assert [row["space"] for row in document["choices"][0]["left_out"]] == ["one", "two"]
    assert len(document["rows"]) == 4
    assert document["rows"][0]["time"]["p"] != document["rows"][2]["time"]["p"]  # the change had an effect
    part = choice_pages.brief(document)
    assert f"| {document['choices'][0]['left_out_mean']['p']:.3f} |" in part
    late = command("--minutes", "0")
    assert late.returncode == 1
    assert "give more --minutes" in late.stderr
