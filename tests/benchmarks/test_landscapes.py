"""Landscapes (benchmarks/search/landscapes.py): how one is measured, what is kept, and the floors under the search."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from autotuner.spaces.space import Space
from autotuner.store import Store
from autotuner.tuning.finals import standings
from autotuner.tuning.run.driver import Driver, Event, Judged
from autotuner.tuning.run.plan import Plan
from autotuner.tuning.workbench import load_space
from autotuner.values.errors import InputError
from autotuner.values.outcome import Outcome
from autotuner.values.variant import Variant
from autotuner.values.verdict import Verdict
from benchmarks.search import landscapes
from benchmarks.search.replay_spaces import Landscape, LandscapePoint, read
from tests.helpers import simulated
from tests.helpers.command_line import SPACE as MUTANT_SPACE
from tests.helpers.command_line import lay_out
from tests.helpers.fake_line import FakeLine, Truth
from tests.helpers.inline_executor import InlineExecutor

ROOT = Path(__file__).parent.parent.parent
KEPT = sorted(landscapes.LANDSCAPES.glob("*.json.gz"))
SPACES = sorted((ROOT / "benchmarks" / "search" / "spaces").glob("*.toml"))
SMALL = simulated.small_space()
WIDTH = 3


def truth(variant: Variant) -> Truth:
    """As simulated; the plain ones are two programs, and one of these is not deterministic."""
    found = simulated.truth(variant)
    if found.fault is None and variant.impl == "plain":
        return found.model_copy(update={"us": 250.0, "program": "the same"})
    return found


def measure(
    folder: Path,
    executor: InlineExecutor | None = None,
    listen: Callable[[Event], None] = lambda _: None,
    minutes: float = math.inf,
    space: Space = SMALL,
) -> int:
    """The step `measure` on the fake backend; its exit code."""
    executor = executor or InlineExecutor(FakeLine(truth, noise=0.001), WIDTH)
    conditions = simulated.conditions().model_copy(update={"min_blocks": landscapes.MIN_BLOCKS})
    with closing(Store.open(str(folder / "landscapes.db"))) as store:
        equal = landscapes.EqualRaces(executor)
        driver = Driver(store, equal, Plan(space, simulated.DEVICE, conditions, sampler="exhaustive"), listen)
        return landscapes.measure(store, driver, space, simulated.DEVICE, folder / "small.json.gz", "made up", minutes)


def recorded_in(folder: Path) -> list[Outcome]:
    """What the store has of the one study."""
    with closing(Store.open(str(folder / "landscapes.db"))) as store:
        (study,) = standings.studies(store)
        return list(store.judged_numbers(study.name).values())


def killed_after(folder: Path, count: int) -> None:
    """`measure`, and `kill -9` after `count` points. For a process of its own."""

    def listen(event: Event) -> None:
        if isinstance(event, Judged) and event.judged == count:
            os.kill(os.getpid(), signal.SIGKILL)

    measure(folder, listen=listen)


# The spaces ---------------------------------------------------------------------------------------------------------


def test_each_kept_landscape_has_the_space_file_that_is_here() -> None:
    assert [path.name.removesuffix(".json.gz") for path in KEPT] == [path.stem for path in SPACES]
    for kept, path in zip(KEPT, SPACES, strict=True):
        measured = Landscape.read(kept)
        then, now = (Space.enumerate(file, measured.device.facts) for file in (measured.space, load_space(str(path))))
        assert then.digest == now.digest
        np.testing.assert_array_equal(then.derived, now.derived)
        np.testing.assert_array_equal(then.expected, now.expected)


# Measuring ----------------------------------------------------------------------------------------------------------


def test_every_point_is_there_as_it_was_judged(tmp_path: Path) -> None:
    assert measure(tmp_path) == 0
    found = Landscape.read(tmp_path / "small.json.gz")
    assert [each.point for each in found.points] == [SMALL.point(place) for place in range(len(SMALL))]
    assert found.space.path == "small.toml"
    assert found.compiler == "fake"
    assert found.baseline_us == pytest.approx(100.0, rel=0.01)
    plain = [each for each in found.points if each.point["IMPL"] == "plain"]
    assert Counter(each.verdict for each in plain) == {Verdict.MEASURED: 1, Verdict.DEDUPLICATED: 2}
    assert len({(each.us, each.half_width) for each in plain}) == 1
    assert [set(each.seconds) for each in plain if each.verdict == Verdict.DEDUPLICATED] == [{"build"}] * 2
    for each in found.points:
        true = truth(Variant.of("sdpa", "cpu", each.point))
        if true.fault is not None:
            assert (each.verdict, each.us, each.half_width) == (true.fault, None, None)
        else:
            assert each.us == pytest.approx(true.us, rel=0.005)
            assert each.half_width is not None
            assert 0 < each.half_width <= 0.005
    assert read(tmp_path / "small.json.gz").faults.count(Verdict.INCORRECT) == 2


def test_killed_it_goes_on_and_judges_nothing_again(tmp_path: Path) -> None:
    code = f"from pathlib import Path; from {__name__} import *; killed_after(Path({str(tmp_path)!r}), 8)"
    killed = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not (tmp_path / "small.json.gz").exists()
    before = {each.variant.digest: each for each in recorded_in(tmp_path)}
    assert len(before) >= 8
    backend = FakeLine(truth, noise=0.001)
    assert measure(tmp_path, InlineExecutor(backend, WIDTH)) == 0
    assert not before.keys() & {variant.digest for variant in backend.built}
    assert len(backend.built) == len(SMALL) - len(before)
    found = Landscape.read(tmp_path / "small.json.gz")
    assert len(found.points) == len(SMALL)
    for each in found.points:
        earlier = before.get(Variant.of("sdpa", "cpu", each.point).digest)
        if earlier is not None:
            assert each == LandscapePoint.of(earlier, found.baseline_us or math.nan)


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


# What is kept -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["{}", '{"format": "autotuner landscape 1"}', "no JSON"])
def test_what_is_no_landscape_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "bad.json").write_text(text)
    with pytest.raises(InputError, match=r"bad\.json: no") as refused:
        Landscape.read(tmp_path / "bad.json")
    assert "\n" not in str(refused.value)


# Floors -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.name)
def test_evolution_reaches_the_floor_of_a_kept_landscape(path: Path) -> None:
    assert landscapes.not_held(landscapes.held(path)) == []


def test_a_landscape_that_does_not_hold_says_why() -> None:
    found = {"name": "x", "floor": 0.5, "evolution": 0.4, "random": 0.6, "measured_anew": True}
    assert len(landscapes.not_held(found)) == 3
    assert landscapes.not_held({**found, "evolution": 0.5, "random": 0.1, "measured_anew": False}) == []
