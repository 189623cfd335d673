"""The programs of benchmarks/: they start, their exit codes mean something, and what they keep is whole."""

import runpy
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from autotuner.spaces.space import Space
from autotuner.tuning.workbench import load_space
from benchmarks import shards
from benchmarks.attacks import judged
from benchmarks.attacks.catalogue import groups
from benchmarks.search import landscapes
from benchmarks.search.replay_spaces import Landscape
from tests.emulator.emulator import cuda_include

ROOT = Path(__file__).parent.parent.parent
PROGRAMS = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in (ROOT / "benchmarks").rglob("*.py")
    if "ArgumentParser(" in (text := path.read_text()) and "\nif __name__ == " in text
)


@pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_says_how_it_is_called(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("usage: ")


# Programs whose exit code says that something holds -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("gate.view_mutants", ["no_such_view", "--json", "OUT"]),
        ("gate.op_mutants", ["OUT", "--op", "rmsnorm", "--name", "no_such_mutant"]),
        ("gate.mutants", ["OUT", "--only", "right", "--dtype", "nonsense", "--hold"]),
        ("timing.aa_sweeps", ["cpu", "--sweeps", "0", "--json", "OUT"]),
        ("timing.simulated_truth", ["--sweeps", "0", "--json", "OUT"]),
        pytest.param(
            "gate.emulated",
            ["--name", "no_such_mutant", "--json", "OUT"],
            marks=pytest.mark.skipif(cuda_include() is None, reason="needs the headers of CUDA"),
        ),
    ],
    ids=["views", "ops", "mutants", "nobody", "truth", "emulated"],
)
def test_a_program_that_has_nothing_to_measure_fails_and_writes_over_nothing(
    program: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "kept.json"
    kept.write_text('{"cpu": {"right": 1}}')
    monkeypatch.setattr(sys, "argv", ["program", *(str(kept) if word == "OUT" else word for word in words)])
    with pytest.raises(SystemExit) as ended:
        import_module(f"benchmarks.{program}").main()
    assert ended.value.code == 1
    assert kept.read_text() == '{"cpu": {"right": 1}}'


# What there is to judge -----------------------------------------------------------------------------------------------


def test_there_are_attacks_enough_and_no_name_is_there_twice() -> None:
    for found, least in ((groups("cpu"), judged.LEAST), (groups("cuda"), 40)):
        names = [(group.name, each.name) for group in found for each in group.attacks]
        assert len(names) == len(set(names)) >= least


# Landscapes (benchmarks/search/landscapes.py) -------------------------------------------------------------------------


KEPT = sorted(landscapes.LANDSCAPES.glob("*.json.gz"))
SPACE = ROOT / "benchmarks" / "search" / "spaces" / "sdpa_mission.toml"


def test_each_kept_landscape_has_the_space_of_the_file_that_is_here() -> None:
    for measured in map(Landscape.read, KEPT):
        here = load_space(str(SPACE), problems=[str(problem) for problem in measured.space.problems])
        then, now = (Space.enumerate(file, measured.device.facts) for file in (measured.space, here))
        assert then.digest == now.digest
        for one, other in zip(then.branches, now.branches, strict=True):
            np.testing.assert_array_equal(one.derived, other.derived)
            np.testing.assert_array_equal(one.expected, other.expected)


@pytest.mark.slow
def test_evolution_reaches_the_floor_of_a_kept_landscape() -> None:
    """Of the smallest: `make proof PART=landscapes` holds every one to its floor."""
    smallest = min(KEPT, key=lambda path: path.stat().st_size)
    assert landscapes.not_held(landscapes.held(smallest)) == []


# Proofs in parts (benchmarks/shards.py) -------------------------------------------------------------------------------


def test_each_gpu_has_its_share_of_the_cpus_and_each_drawn_problem_a_part() -> None:
    shares = shards.places(range(4), ["0", "1"])
    assert [place.gpu for place in shares] == ["0", "1"]
    assert sorted(cpu for place in shares for cpu in place.cpus) == [0, 1, 2, 3]
    assert {len(place.cpus) for place in shards.places(range(4), [])} == {2}
    _, drawn = shards.proof("drawn7")
    assert len(drawn.parts({})) == len(set(drawn.parts({}))) == 12


def test_what_a_document_holds_is_in_no_part() -> None:
    first = shards.attacks("cpu", {})[0][1]
    group, name = first.split("/")
    parts = [shards.attacks("cpu", document) for document in ({}, {"rows": [{"group": group, "name": name}]})]
    whole, rest = ({each for part in found for each in part[1:]} for found in parts)
    assert whole - rest == {first}
