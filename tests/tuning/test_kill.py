"""kill -9 at random moments, then the same command again: nothing is lost, nothing is judged twice."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
import tomllib
import uuid
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState

from autotuner.measure.confirm import PROCESSES
from autotuner.store import Store, queries
from autotuner.tuning import standings
from tests.cli.test_cli import MUTANTS, SPACE, autotuner, lay_out

SCRIPT = Path(sys.executable).parent / "autotuner"
MARK = f"MARK_OF_A_TEST={uuid.uuid4()}"
"""In the environment of what `kill` starts, and so of what that starts."""
KILLS = 20
TRIALS = 85


def recorded(store: Store) -> dict[int, tuple[str, str, str]]:
    """What is recorded of each trial: variant, verdict, when."""
    with contextlib.suppress(LookupError):
        (study,) = standings.studies(store)
        found = {}
        for number in store.judged_numbers(study.name):
            record = queries.trial(store, study.name, number)
            outcome = record.outcome
            found[number] = (outcome.variant.digest, str(outcome.verdict), record.recorded_at.isoformat())
        return found
    return {}


def marked() -> list[str]:
    """Command lines of the living processes that `kill` has started, and of those that they have."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if MARK.encode() in (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_text())
    return found


def kill(command: Sequence[str], folder: Path, after: str, seconds: float) -> None:
    """Starts it, and kills it so long after it has printed a line that begins so; nothing is waited for if that is
    empty. What it leaves running has to end by itself."""
    name, _, value = MARK.partition("=")
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, name: value},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        text=True,
    )
    assert process.stdout is not None
    if after:
        assert any(line.startswith(after) for line in process.stdout), f"it never said {after}"
    time.sleep(seconds)
    assert marked(), "the mark is not seen"
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()


def wait_for_the_rest(seconds: float = 20) -> None:
    """Until nothing is left of what was killed."""
    until = time.monotonic() + seconds
    while marked() and time.monotonic() < until:
        time.sleep(0.2)
    assert not marked()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_twenty_kills_lose_nothing(tmp_path: Path) -> None:
    lay_out(tmp_path)
    names = {entry["name"] for entry in tomllib.loads((MUTANTS / "expected.toml").read_text())["numeric"]}
    quoted = ", ".join(f'"{name}"' for name in sorted(names))
    space = SPACE.split("MUTANT = [")[0] + f'MUTANT = [{quoted}]\n\n[default]\nIMPL = "mutant"\nMUTANT = "none"\n'
    (tmp_path / "space.toml").write_text(space)
    command = [str(SCRIPT), "tune", "space.toml", "--trials", str(TRIALS), "--no-finals"]  # no kill would meet them
    draw = random.Random(20)
    before: dict[int, tuple[str, str, str]] = {}
    for turn in range(KILLS):
        if turn % 2:  # at any moment of the start
            kill(command, tmp_path, "", draw.uniform(0.2, 4.0))
        else:  # at any moment of the loop
            kill(command, tmp_path, "[", draw.uniform(0.0, 1.5))
        if not (tmp_path / "studies.db").exists():
            continue
        with Store.open(str(tmp_path / "studies.db"), create=False) as store:
            now = recorded(store)
        assert before.items() <= now.items()
        before = now
    assert 0 < len(before) < TRIALS, "the kills came too early or too late to prove anything"

    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with Store.open(str(tmp_path / "studies.db"), create=False) as store:
        final = recorded(store)
        (study,) = standings.studies(store)
        trials = optuna.load_study(study_name=study.name, storage=store.optuna_storage()).get_trials()
    assert before.items() <= final.items()
    judged = [variant for variant, verdict, _ in final.values() if verdict != "infra_error"]
    assert len(judged) == TRIALS
    assert len(set(judged)) == TRIALS
    states = Counter(trial.state for trial in trials)
    assert states[TrialState.RUNNING] == 0
    assert {trial.number for trial in trials if trial.state == TrialState.COMPLETE} == {
        number for number, (_, verdict, _) in final.items() if verdict != "infra_error"
    }
    assert (tmp_path / "best.json").exists()
    wait_for_the_rest()


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_kills_amid_the_finals_lose_nothing(tmp_path: Path) -> None:
    lay_out(tmp_path)
    (tmp_path / "space.toml").write_text(SPACE)
    command = [str(SCRIPT), "tune", "space.toml", "--trials", "1"]
    draw = random.Random(21)
    raced = 0
    """Heats that are in the store at least."""
    before: dict[int, tuple[str, str, str]] = {}
    for after, heats in (("finals: judging", 0), ("finals: process 1 of", 0), ("finals: process 4 of", 3)):
        kill(command, tmp_path, after, draw.uniform(0.0, 1.0))
        raced += heats
        with Store.open(str(tmp_path / "studies.db"), create=False) as store:
            (study,) = standings.studies(store)
            found = recorded(store)
            assert [verdict for _, verdict, _ in found.values() if verdict != "infra_error"] == ["measured"]
            assert found == before or not before, "the trial was judged, so a driver that goes on asks for no other"
            before = found
            assert standings.finals(store, study.name) is None, "finals that did not end say nothing"
            assert sum(len(each.heats) for each in queries.all_finals(store, study.name)) >= raced
        shown = autotuner(tmp_path, "leaderboard")
        assert shown.returncode == 0, shown.stderr
        assert "Search estimates" in shown.stdout

    done = autotuner(tmp_path, *command[1:])
    assert done.returncode == 0, done.stderr
    with Store.open(str(tmp_path / "studies.db"), create=False) as store:
        last, *killed = queries.all_finals(store, study.name)
    assert len(last.heats) == PROCESSES
    assert last.standing is not None
    assert [each.finished_at for each in killed] == [None] * len(killed)
    assert sum(len(each.heats) for each in killed) >= raced
    assert (tmp_path / "best.json").exists()
    wait_for_the_rest()
