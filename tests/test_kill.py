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
from collections import Counter
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState

from autotuner.store import Store, queries
from tests.test_cli import MUTANTS, SPACE, lay_out

KILLS = 20
TRIALS = 85


def recorded(store: Store) -> dict[int, tuple[str, str, str]]:
    """What is recorded of each trial: variant, verdict, when."""
    with contextlib.suppress(LookupError):
        (study,) = queries.studies(store)
        found = {}
        for number in store.judged_numbers(study.name):
            record = queries.trial(store, study.name, number)
            outcome = record.outcome
            found[number] = (outcome.variant.digest, str(outcome.verdict), record.recorded_at.isoformat())
        return found
    return {}


def workers_of(group: int) -> list[str]:
    """Command lines of living processes in the session of that leader."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rsplit(")", 1)[1].split()
            if int(fields[3]) == group and fields[0] != "Z":
                found.append((stat.parent / "cmdline").read_text())
    return found


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_twenty_kills_lose_nothing(tmp_path: Path) -> None:
    lay_out(tmp_path)
    names = {entry["name"] for entry in tomllib.loads((MUTANTS / "expected.toml").read_text())["numeric"]}
    quoted = ", ".join(f'"{name}"' for name in sorted(names))
    space = SPACE.split("MUTANT = [")[0] + f'MUTANT = [{quoted}]\n\n[default]\nIMPL = "mutant"\nMUTANT = "none"\n'
    (tmp_path / "space.toml").write_text(space)
    command = [str(Path(sys.executable).parent / "autotuner"), "tune", "space.toml", "--trials", str(TRIALS)]
    command += ["--no-finals"]  # no kill would meet them
    draw = random.Random(20)
    before: dict[int, tuple[str, str, str]] = {}
    for turn in range(KILLS):
        process = subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True, text=True
        )
        assert process.stdout is not None
        if turn % 2:  # at any moment of the start
            time.sleep(draw.uniform(0.2, 4.0))
        else:  # at any moment of the loop
            next((line for line in process.stdout if line.startswith("[")), None)
            time.sleep(draw.uniform(0.0, 1.5))
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
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
        (study,) = queries.studies(store)
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
    time.sleep(1)
    assert not [line for line in workers_of(process.pid) if "autotuner" in line]
