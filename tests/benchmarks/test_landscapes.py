"""Landscapes (benchmarks/search/landscapes.py): how one is measured, what is kept, and the floors under the search."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from autotuner.spaces.space import Space
from autotuner.tuning.workbench import load_space
from autotuner.values.verdict import Verdict
from benchmarks.search import landscapes
from benchmarks.search.replay_spaces import Landscape
from tests.helpers.command_line import SPACE as MUTANT_SPACE
from tests.helpers.command_line import lay_out

ROOT = Path(__file__).parent.parent.parent
KEPT = sorted(landscapes.LANDSCAPES.glob("*.json.gz"))
SPACES = sorted((ROOT / "benchmarks" / "search" / "spaces").glob("*.toml"))


def test_each_kept_landscape_has_the_space_file_that_is_here() -> None:
    assert [path.name.removesuffix(".json.gz") for path in KEPT] == [path.stem for path in SPACES]
    for kept, path in zip(KEPT, SPACES, strict=True):
        measured = Landscape.read(kept)
        then, now = (Space.enumerate(file, measured.device.facts) for file in (measured.space, load_space(str(path))))
        assert then.digest == now.digest
        for one, other in zip(then.branches, now.branches, strict=True):
            np.testing.assert_array_equal(one.derived, other.derived)
            np.testing.assert_array_equal(one.expected, other.expected)


@pytest.mark.slow
@pytest.mark.timed
@pytest.mark.sampled(2, of="whole sweeps")
def test_the_command_on_real_variants(tmp_path: Path) -> None:
    lay_out(tmp_path)
    (tmp_path / "space.toml").write_text(MUTANT_SPACE)
    line = [sys.executable, "-m", landscapes.__name__, "measure", "space.toml", "out.json.gz"]
    first = subprocess.run([*line, "--minutes", "0"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (first.returncode, first.stdout) == (3, "4 of 4 points are missing: run the same command again.\n")
    second = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert second.returncode == 0, second.stderr
    found = Landscape.read(tmp_path / "out.json.gz")
    verdicts = {each.point["MUTANT"]: each.verdict for each in found.points}
    assert verdicts.pop("none") == Verdict.MEASURED
    assert set(verdicts.values()) == {Verdict.INCORRECT}
    assert found.command.startswith("python -m benchmarks.search.landscapes measure space.toml")
    third = subprocess.run(
        [*line[:-2], "nowhere.toml", "o.json"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert third.returncode == 2
    assert len(third.stderr.splitlines()) == 1


@pytest.mark.slow
def test_evolution_reaches_the_floor_of_a_kept_landscape() -> None:
    """Of the smallest: `make proof PART=landscapes` holds every one to its floor."""
    smallest = min(KEPT, key=lambda path: path.stat().st_size)
    assert landscapes.not_held(landscapes.held(smallest)) == []


def test_a_landscape_that_does_not_hold_says_why() -> None:
    found = {"name": "x", "floor": 0.5, "evolution": 0.4, "random": 0.6, "measured_anew": True}
    assert len(landscapes.not_held(found)) == 3
    assert landscapes.not_held({**found, "evolution": 0.5, "random": 0.1, "measured_anew": False}) == []
