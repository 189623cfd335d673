"""The command line as a user meets it: real runs, one-line errors, exit codes, JSON."""

import json
import shutil
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from autotuner.race.confirm import FIRST
from autotuner.store import Store, queries
from autotuner.tuning.finals import standings
from tests.helpers.command_line import SPACE, autotuner, in_vain, lay_out, one_line

AFTERWARDS = pytest.mark.sampled(1, of="on what was tuned")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder: a space, and the kernel family it names beside it."""
    folder = tmp_path_factory.mktemp("user")
    lay_out(folder)
    return folder


@pytest.fixture(scope="module")
def tuned(folder: Path) -> subprocess.CompletedProcess[str]:
    """A sweep over the whole small space. In less than two minutes no baseline is compiled, half of what it takes."""
    done = autotuner(folder, "tune", "space.toml", "--trials", "4", "--minutes", "1.9", "--finals-minutes", "0.1")
    if done.returncode == 0 and json.loads(autotuner(folder, "status", "--json").stdout)[0]["disturbed"]:
        pytest.skip("the sweep waited for a calm machine in vain")
    return done


@pytest.mark.timed
@pytest.mark.slow
def test_a_sweep_ends_with_a_leaderboard_and_best_json(tuned: subprocess.CompletedProcess[str], folder: Path) -> None:
    assert tuned.returncode == 0, tuned.stderr
    assert "finals: process 1 of" in tuned.stdout
    assert "confirmed" in tuned.stdout
    assert "[4/4]" in tuned.stdout
    assert tuned.stderr == ""
    best = json.loads((folder / "best.json").read_text())
    assert best["parameters"] == {"IMPL": "mutant", "MUTANT": "none"}
    (summary,) = json.loads(autotuner(folder, "status", "--json").stdout)
    assert (summary["judged"], summary["by_verdict"]["incorrect"]) == (4, 3)


@pytest.mark.timed
@pytest.mark.slow
@AFTERWARDS
def test_the_same_command_again_judges_nothing_twice(tuned: subprocess.CompletedProcess[str], folder: Path) -> None:
    """What a disturbed machine left without a verdict, or without a crown, is taken up again, and nothing else."""
    assert tuned.returncode == 0
    (before,) = json.loads(autotuner(folder, "status", "--json").stdout)
    again = autotuner(folder, "tune", "space.toml", "--trials", "4", "--minutes", "1.9", "--finals-minutes", "0.1")
    assert again.returncode == 0
    judged = before["judged"]
    assert judged > 0
    assert f"{judged} judged already" in again.stdout
    assert f"[{judged}/4]" not in again.stdout
    if judged == 4 and "nobody is crowned" not in tuned.stdout:
        assert "finals:" not in again.stdout  # nobody new would be in them


@pytest.mark.timed
@pytest.mark.sampled(1, of="whole sweeps")
@pytest.mark.slow
def test_a_sweep_may_begin_with_the_best_of_another(tuned: subprocess.CompletedProcess[str], folder: Path) -> None:
    """Its own default is wrong, so that the right one can only come from there."""
    assert tuned.returncode == 0
    text = SPACE.replace('MUTANT = "none"', 'MUTANT = "k_and_v_swapped"')
    (folder / "other.toml").write_text(text)
    shutil.copy(folder / "studies.db", folder / "other.db")
    begun = autotuner(
        folder, "tune", "other.toml", "--from", "space-", "--trials", "1", "--no-finals", "--store", "other.db"
    )
    assert begun.returncode == 0, begun.stderr
    assert "MUTANT=none" in begun.stdout
    assert begun.stdout.index("in all; --minutes ends it earlier") < begun.stdout.index("trial 0")
    one_line(autotuner(folder, "tune", "other.toml", "--from", "nowhere", "--store", "other.db"), "nowhere")


@pytest.mark.timed
@pytest.mark.slow
def test_what_finals_found_is_kept(tuned: subprocess.CompletedProcess[str], folder: Path) -> None:
    (best,) = json.loads(autotuner(folder, "leaderboard", "--json").stdout)
    if not best.get("confirmed"):
        assert in_vain(tuned.stdout)  # the machine stayed disturbed
        return
    ends = best["confirmed_interval"]
    assert ends["low"] < ends["mid"] == best["confirmed"] < ends["high"]
    with closing(Store.open(str(folder / "studies.db"))) as store:
        held = standings.finals(store, queries.resolve_study(store, None))
    assert len(held.heats) > held.standing.processes >= FIRST  # the baseline alone, too
    assert [each.code for each in held.standing.proofs[0].checks] == ["G6.many", "G8.memory"]


@pytest.mark.timed
@pytest.mark.slow
@AFTERWARDS
def test_the_a_a_test_runs_on_the_best(tuned: subprocess.CompletedProcess[str], folder: Path) -> None:
    """One binary against itself, for real; that no winner is named is shown on a quiet machine by benchmarks/."""
    assert tuned.returncode == 0
    race = json.loads(autotuner(folder, "finals", "--aa", "--blocks", "12", "--json").stdout)
    assert race["blocks"] == 12
    assert race["interval"]["low"] <= race["interval"]["mid"] == race["speedup"] <= race["interval"]["high"]


def test_a_missing_compiler_is_one_line_with_the_remedy(folder: Path) -> None:
    one_line(autotuner(folder, "tune", "space.toml", CXX="no-such-compiler"), "no-such-compiler", "install")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("columns", [70, 150])
def test_a_table_that_is_piped_is_as_wide_as_columns_says(folder: Path, columns: int) -> None:
    text = autotuner(folder, "space", "show", "sdpa_cpu", COLUMNS=str(columns)).stdout
    rules = [len(line) for line in text.splitlines() if "─" in line]
    assert 60 < max(rules) <= columns
