"""What a search gains from a related one (benchmarks/search/transfer.py): how it is counted, and that it stays."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.search import transfer, transfer_pages
from benchmarks.search.replay_spaces import Recorded, read
from benchmarks.search.transfer import SHOWN, Found

ROOT = Path(__file__).parent.parent.parent
KEPT = sorted((ROOT / "docs" / "results" / "landscapes").glob("*.json.gz"))


@pytest.fixture
def spaces() -> Iterator[list[Recorded]]:
    found = [read(path) for path in KEPT]
    transfer.SPACES[:] = [*found, *map(transfer.unaided, found)]
    yield found
    transfer.SPACES.clear()


def found(until: int, late: float = 1.0) -> Found:
    """A search that is at 2 ms, and from its tenth evaluation on at `late`."""
    return Found(np.where(np.arange(SHOWN[-1]) < 9, 2.0, late), until)


def command(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", transfer.__name__, *map(str, arguments)]
    return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)


def test_a_pair_is_compared_by_evaluations_and_by_the_best_so_far(spaces: list[Recorded]) -> None:
    cold, warm = [found(20), found(40), found(90)], [found(10, 1.1), found(10, 1.1), found(40, 1.1)]
    made = transfer.row(0, 1, {(None, 1): cold, (0, 1): warm, (None, 4): [found(100)] * 3})
    assert made["median_evaluations"]["ratio"]["ratio"] == 10 / 40
    assert made["mean_evaluations"]["cold"] == 50
    assert made["mean_evaluations"]["warm"] == 20
    assert made["mean_evaluations"]["unaided"] == 100
    assert made["mean_evaluations"]["ratio_to_unaided"]["ratio"] == 0.2
    assert made["mean_evaluations"]["ratio"]["low"] <= 0.4 <= made["mean_evaluations"]["ratio"]["high"]
    assert [made["best_so_far"][str(count)]["ratio"] for count in SHOWN] == pytest.approx([1.1] * len(SHOWN))
    assert made["worst_best_so_far"]["after"] == 10
    document = {"rows": [made], "seeds": 3, "evaluations_of_a_source": 5, "within": 0.02}
    document |= {"command": "", "when": "2026-01-01T00:00:00+00:00", "versions": {"numpy": "2"}, "cpus": 1}
    said = transfer_pages.said(document)
    assert "by the median on 1, by the mean on 1" in said
    assert "never more than 5 % worse on 0" in said
    also = {**made, "target": "elsewhere"}
    brief = transfer_pages.said_of_others({**document, "rows": [made, also]}, document)
    assert "Of 1 pairs" in brief


def test_unaided_is_the_same_space_but_for_what_it_expects(spaces: list[Recorded]) -> None:
    for recorded in spaces:
        bare = transfer.unaided(recorded)
        assert recorded.space.expected is not None
        assert bare.space.expected is None
        assert bare.space.digest == recorded.space.digest
        assert (bare.space.derived == recorded.space.derived).all()
        assert bare.ms is recorded.ms


def test_near_the_optimum_is_within_two_per_cent(spaces: list[Recorded]) -> None:
    for recorded in spaces:
        near = transfer.near_optimal(recorded)
        best = np.nanmin(recorded.ms)
        assert int(np.nanargmin(recorded.ms)) in near
        assert max(recorded.ms[place] for place in near) <= 1.02 * best
        assert sum(ms <= 1.02 * best for ms in recorded.ms.tolist() if not math.isnan(ms)) == len(near)


def test_one_space_is_no_pair() -> None:
    done = command(KEPT[0])
    assert done.returncode == 1
    assert done.stderr.strip() == "transfer: one space: give two or more, recorded for different problems"


def made_up(ratio: float, unaided: float) -> list[dict[str, Any]]:
    """The rows of two pairs."""
    means = {"ratio": {"ratio": ratio}, "ratio_to_unaided": {"ratio": unaided}}
    return [{"source": source, "target": "x", "mean_evaluations": means} for source in ("a", "b")]


@pytest.mark.parametrize(("ratio", "unaided", "unmet"), [(0.3, 0.1, 0), (0.45, 0.1, 1), (0.55, 0.1, 3), (0.3, 0.3, 1)])
def test_what_must_hold_of_the_pairs_is_told_where_it_does_not(ratio: float, unaided: float, unmet: int) -> None:
    assert len(transfer.unmet(made_up(ratio, unaided))) == unmet


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("pair", list(permutations(KEPT, 2)), ids=lambda pair: " to ".join(path.stem for path in pair))
def test_a_related_study_shortens_a_search(pair: tuple[Path, Path], tmp_path: Path) -> None:
    """Few searches of one pair; `make proof PART=transfer` has a hundred of each."""
    done = command(*pair, "--seeds", "4", "--json", tmp_path / "t.json")
    assert done.returncode == 0, done.stderr
    (row, _) = json.loads((tmp_path / "t.json").read_text())["rows"]
    assert row["mean_evaluations"]["ratio"]["ratio"] < 0.8
    assert row["mean_evaluations"]["ratio_to_unaided"]["ratio"] < 0.6
