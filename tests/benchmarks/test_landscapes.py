"""Landscapes (benchmarks/search/landscapes.py): how one is measured, what is kept, and the floors under the search."""

from pathlib import Path

import numpy as np
import pytest

from autotuner.spaces.space import Space
from autotuner.tuning.workbench import load_space
from benchmarks.search import landscapes
from benchmarks.search.replay_spaces import Landscape

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
def test_evolution_reaches_the_floor_of_a_kept_landscape() -> None:
    """Of the smallest: `make proof PART=landscapes` holds every one to its floor."""
    smallest = min(KEPT, key=lambda path: path.stat().st_size)
    assert landscapes.not_held(landscapes.held(smallest)) == []


def test_a_landscape_that_does_not_hold_says_why() -> None:
    found = {"name": "x", "floor": 0.5, "evolution": 0.4, "random": 0.6, "measured_anew": True}
    assert len(landscapes.not_held(found)) == 3
    assert landscapes.not_held({**found, "evolution": 0.5, "random": 0.1, "measured_anew": False}) == []
