"""The choice of the sampler's constants by the spaces that are not left out (benchmarks/search/replay_choice.py)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from autotuner.search.settings import DEFAULT
from benchmarks.search import choice_pages, replay_choice
from benchmarks.search.replay_choice import (
    AS_IT_IS,
    Sampled,
    choice,
    left_out,
)
from benchmarks.search.replay_spaces import Recorded, read, write_t4

ROOT = Path(__file__).parent.parent.parent
MADE_UP = ROOT / "tests" / "data" / "replay" / "made_up.json"


@pytest.fixture(scope="module")
def recorded() -> Recorded:
    return read(MADE_UP)


def scores(table: dict[str, tuple[float, ...]], spaces: tuple[str, ...]) -> dict[str, dict[str, Sampled]]:
    """By candidate and space, with resamples around each score; the same deviations for all."""
    around = np.linspace(-0.1, 0.1, 101)
    return {
        name: {space: Sampled(p, p + around) for space, p in zip(spaces, row, strict=True)}
        for name, row in table.items()
    }


# Choosing -----------------------------------------------------------------------------------------------------------


def test_what_is_left_out_has_no_say() -> None:
    """`special` is the best by far on conv alone, and by that in the mean; `steady` is better everywhere else."""
    made = scores(
        {AS_IT_IS: (0.5, 0.5, 0.5), "special": (0.99, 0.4, 0.4), "steady": (0.4, 0.6, 0.55)}, ("conv", "g", "p")
    )
    by_space = {row["space"]: row for row in left_out(made)}
    assert by_space["conv"]["chosen"] == "steady"
    assert by_space["conv"]["chosen_p"] == 0.4
    assert by_space["conv"]["difference"]["p"] == pytest.approx(-0.1)
    assert (by_space["conv"]["best_in_hindsight"], by_space["conv"]["best_p"]) == ("special", 0.99)
    assert by_space["g"]["chosen"] == by_space["p"]["chosen"] == "special"
    whole = choice(made)
    assert whole["chosen"] == "special"
    assert whole["left_out_mean"]["p"] == pytest.approx((0.4 + 0.4 + 0.4) / 3)
    assert whole["left_out_mean"]["difference"]["p"] == pytest.approx(-0.1)
    assert [row["candidate"] for row in whole["overall"]] == ["special", "steady", AS_IT_IS]


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
