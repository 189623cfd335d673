"""The command line as a user meets it: real runs, one-line errors, exit codes, JSON."""

from __future__ import annotations

import json
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from autotuner.race.confirm import FIRST
from tests.helpers.command_line import SPACE, autotuner, in_vain, lay_out, one_line

pytestmark = pytest.mark.timed


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder: a space, and the kernel family it names beside it."""
    folder = tmp_path_factory.mktemp("user")
    lay_out(folder)
    (folder / "space.toml").write_text(SPACE)
    return folder


@pytest.fixture(scope="module")
def tuned(folder: Path) -> subprocess.CompletedProcess[str]:
    """A sweep over the whole small space."""
    done = autotuner(folder, "tune", "space.toml", "--trials", "4", "--finals-minutes", "0.1")
    if done.returncode == 0 and json.loads(autotuner(folder, "status", "--json").stdout)[0]["disturbed"]:
        pytest.skip("the sweep waited for a calm machine in vain")
    return done


@pytest.mark.slow
def test_a_sweep_ends_with_a_leaderboard_and_best_json(tuned: subprocess.CompletedProcess[str], folder: Path) -> None:
    assert tuned.returncode == 0, tuned.stderr
    assert "finals: process 1 of" in tuned.stdout
    assert "confirmed" in tuned.stdout
    assert "[4/4]" in tuned.stdout
    assert tuned.stderr == ""
    best = json.loads((folder / "best.json").read_text())
    assert best["parameters"] == {"IMPL": "mutant", "MUTANT": "none"}


@pytest.mark.slow
def test_the_same_command_again_judges_nothing_twice(tuned: subprocess.CompletedProcess[str], folder: Path) -> None:
    """What a disturbed machine left without a verdict, or without a crown, is taken up again, and nothing else."""
    assert tuned.returncode == 0
    (before,) = json.loads(autotuner(folder, "status", "--json").stdout)
    again = autotuner(folder, "tune", "space.toml", "--trials", "4", "--finals-minutes", "0.1")
    assert again.returncode == 0
    judged = before["judged"]
    assert judged > 0
    assert f"{judged} judged already" in again.stdout
    assert f"[{judged}/4]" not in again.stdout
    if judged == 4 and "nobody is crowned" not in tuned.stdout:
        assert "finals:" not in again.stdout  # nobody new would be in them


@pytest.mark.slow
def test_status_and_leaderboard(tuned: subprocess.CompletedProcess[str], folder: Path) -> None:
    assert tuned.returncode == 0
    (summary,) = json.loads(autotuner(folder, "status", "--json").stdout)
    assert summary["judged"] == 4
    assert summary["by_verdict"]["incorrect"] == 3
    entries = json.loads(autotuner(folder, "leaderboard", "--json").stdout)
    assert [entry["parameters"]["MUTANT"] for entry in entries] == ["none"]
    assert "3 incorrect" in autotuner(folder, "status").stdout
    assert "MUTANT=none" in autotuner(folder, "leaderboard").stdout


@pytest.mark.slow
def test_every_trial_is_listed_with_its_reason(tuned: subprocess.CompletedProcess[str], folder: Path) -> None:
    assert tuned.returncode == 0
    listed = json.loads(autotuner(folder, "trials", "--json").stdout)
    # On a busy machine a trial may be tried again: then it has a line more.
    last = {line["parameters"]["MUTANT"]: line["fault"] for line in listed}
    assert [name for name, fault in last.items() if fault is None] == ["none"]
    assert len(last) == 4
    assert autotuner(folder, "trials").stdout.count("x G") == 3
    done = autotuner(folder, "trials", "--parquet", "--out", "trials.parquet")
    assert f"{len(listed)} trials of" in done.stdout
    assert (folder / "trials.parquet").read_bytes()[:4] == b"PAR1"
    one_line(autotuner(folder, "trials", "--parquet"), "--out FILE")


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
    one_line(autotuner(folder, "tune", "other.toml", "--from", "nowhere", "--store", "other.db"), "nowhere")


@pytest.mark.slow
def test_show_says_why_in_words(tuned: subprocess.CompletedProcess[str], folder: Path) -> None:
    assert tuned.returncode == 0
    listed = json.loads(autotuner(folder, "trials", "--json").stdout)
    # The last of each: where the machine was too busy one was tried again.
    numbers = {line["parameters"]["MUTANT"]: str(line["number"]) for line in listed}
    shown = json.loads(autotuner(folder, "show", numbers["none"], "--json").stdout)
    assert shown["outcome"]["variant"]["parameters"]["MUTANT"] == "none"
    names = ("k_and_v_swapped", "last_row_unwritten", "none")
    texts = {name: autotuner(folder, "show", numbers[name]).stdout for name in names}
    assert "incorrect" in texts["k_and_v_swapped"]
    assert "tolerance" in texts["k_and_v_swapped"]
    assert "G1.unwritten" in texts["last_row_unwritten"]
    assert "Gate:" in texts["none"]


@pytest.mark.slow
def test_best_and_export(tuned: subprocess.CompletedProcess[str], folder: Path) -> None:
    assert tuned.returncode == 0
    assert "MUTANT=none" in autotuner(folder, "show").stdout
    best = json.loads(autotuner(folder, "show", "--json").stdout)
    assert best["entry"]["variant"]["parameters"] == {"MUTANT": "none"}
    exported = autotuner(folder, "export", "--format", "json", "--out", "-")
    document = json.loads(exported.stdout)
    assert document["measurement"]["speedup"]["mid"] > 0
    assert document["baseline"][0]["backend"] in ("flash", "math")
    assert document["gate"]


@pytest.mark.slow
def test_finals_can_be_run_again(tuned: subprocess.CompletedProcess[str], folder: Path) -> None:
    assert tuned.returncode == 0
    before = json.loads(autotuner(folder, "leaderboard", "--json").stdout)[0]
    if before.get("confirmed"):
        ends = before["confirmed_interval"]
        assert ends["low"] < ends["mid"] == before["confirmed"] < ends["high"]
    else:
        assert in_vain(tuned.stdout)
    again = autotuner(folder, "finals", "--minutes", "0.1", "--json")
    if again.returncode:  # the machine stayed disturbed: what was confirmed before stays
        assert in_vain(again.stderr), again.stderr
        assert json.loads(autotuner(folder, "leaderboard", "--json").stdout)[0]["confirmed"] == before["confirmed"]
        return
    found = json.loads(again.stdout)
    assert [each["variant"]["parameters"]["MUTANT"] for each in found["finalists"]] == ["none"]
    assert len(found["heats"]) == 2 * found["standing"]["processes"] >= 2 * FIRST  # the baseline alone, too
    assert [each["code"] for each in found["standing"]["proofs"][0]["checks"]] == ["G6.many", "G8.memory"]
    after = json.loads(autotuner(folder, "leaderboard", "--json").stdout)[0]
    assert after["confirmed"] != before["confirmed"]
    assert after["variant_us"] == before["variant_us"]


@pytest.mark.slow
def test_the_a_a_test_runs_on_the_best(tuned: subprocess.CompletedProcess[str], folder: Path) -> None:
    """One binary against itself, for real; that no winner is named is shown on a quiet machine by benchmarks/."""
    assert tuned.returncode == 0
    race = json.loads(autotuner(folder, "finals", "--aa", "--blocks", "12", "--json").stdout)
    assert race["blocks"] == 12
    assert race["speedup"]["low"] <= race["speedup"]["mid"] <= race["speedup"]["high"]


@pytest.mark.slow
def test_errors_are_one_line_with_the_remedy(folder: Path, tmp_path: Path) -> None:
    nothing = str(tmp_path / "nothing")
    (tmp_path / "bad.toml").write_text(SPACE.replace("MUTANT = [", "MUTANTT = [", 1))
    (tmp_path / "text.db").write_text("this is no database, however long it may be" * 100)
    told: dict[tuple[str, ...], tuple[str, ...]] = {
        ("tune", "no_such_space"): ("no_such_space", "sdpa_cpu"),
        ("tune", "missing.toml"): ("missing.toml", "cannot be read"),
        ("tune", "space.toml", "--out", f"{nothing}/best.json"): ("--out",),
        ("tune", "space.toml", "--sampler", "magic"): ("magic", "evolution"),
        ("tune", "space.toml", "--threads", "4096"): ("4096", "CPUs"),
        ("status", "--store", f"{nothing}/studies.db"): ("nothing",),
        ("show", "77", "--store", "empty.db"): ("empty.db",),
        ("tune", str(tmp_path / "bad.toml")): ("bad.toml", "MUTANT"),
        ("status", "--store", str(tmp_path / "text.db")): ("text.db",),
    }
    with ThreadPoolExecutor(2) as pool:
        for done, words in zip(pool.map(lambda line: autotuner(folder, *line), told), told.values(), strict=True):
            one_line(done, *words)
    one_line(autotuner(folder, "tune", "space.toml", CXX="no-such-compiler"), "no-such-compiler", "install")


@pytest.mark.parametrize("columns", [70, 150])
def test_a_table_that_is_piped_is_as_wide_as_columns_says(folder: Path, columns: int) -> None:
    text = autotuner(folder, "space", "show", "sdpa_cpu", COLUMNS=str(columns)).stdout
    rules = [len(line) for line in text.splitlines() if "─" in line]
    assert 60 < max(rules) <= columns
