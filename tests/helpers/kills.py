"""Sweeps that are killed with kill -9, and what is left of them."""

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
from typing import NamedTuple

import optuna
import pytest
from optuna.trial import TrialState

from autotuner.store import Store, queries
from autotuner.tuning.finals import standings
from autotuner.values.verdict import Verdict
from tests.helpers.command_line import MUTANTS, PATIENCE, SPACE, in_vain, lay_out

SCRIPT = Path(sys.executable).parent / "autotuner"
MARK = f"MARK_OF_A_TEST={uuid.uuid4()}"
"""In the environment of what `kill` starts, and so of what that starts."""


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
    try:
        assert process.stdout is not None
        if after:
            said = ""
            while not (line := process.stdout.readline()).startswith(after):
                said += line
                if not line:
                    skip_in_vain(said)
                    raise AssertionError(f"it never said {after}")
        time.sleep(seconds)
        assert marked(), "the mark is not seen"
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()


def skip_in_vain(said: str) -> None:
    """Skips the test where a sweep says that its finals found no calm machine: they cannot be killed then."""
    if in_vain(said):
        pytest.skip("finals waited for a calm machine in vain")


def wait_for_the_rest(seconds: float = 20) -> None:
    """Until nothing is left of what was killed."""
    until = time.monotonic() + seconds
    while marked() and time.monotonic() < until:
        time.sleep(0.2)
    assert not marked(), f"what was killed left these running: {marked()}"


class Survived(NamedTuple):
    """A sweep that was killed again and again and then went on to its end."""

    kills: int
    trials: int
    before_the_end: int
    """Trials that were recorded when it was killed for the last time."""

    @property
    def proves_something(self) -> bool:
        """True where kills came while it judged."""
        return 0 < self.before_the_end < self.trials


def killed_sweep(folder: Path, kills: int, trials: int) -> Survived:
    """Kills a sweep over the numeric mutants at random moments, then lets it end. Raises AssertionError where something
    was lost or judged twice."""
    lay_out(folder, space_of_mutants())
    # no kill would meet finals; and something else may keep the machine busy at one of the starts
    arguments = ["--trials", str(trials), "--calm", *PATIENCE, "--no-finals"]
    found = killed([str(SCRIPT), "tune", "space.toml", *arguments], folder, kills, trials, 1.5)
    assert (folder / "best.json").exists(), "no best.json"
    return found


def killed(command: Sequence[str], folder: Path, kills: int, trials: int, longest_s: float) -> Survived:
    """The same of any command that prints a line a trial and keeps the study in this folder; `longest_s`: seconds after
    such a line in which a kill comes."""
    draw = random.Random(20)
    before: dict[int, tuple[str, str, str]] = {}
    for turn in range(kills):
        if turn % 2:  # at any moment of the start
            kill(command, folder, "", draw.uniform(0.2, 4.0))
        else:  # at any moment of the loop
            kill(command, folder, "[", draw.uniform(0.0, longest_s))
        if not (folder / "studies.db").exists():
            continue
        with Store.open(str(folder / "studies.db"), create=False) as store:
            now = recorded(store)
        assert before.items() <= now.items(), "what was recorded is not there any more"
        before = now
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"exit code {done.returncode}: {done.stdout[-500:]}{done.stderr}"
    require_whole(folder, before, trials)
    wait_for_the_rest()
    return Survived(kills, trials, len(before))


def space_of_mutants() -> str:
    """A space of every numeric mutant."""
    names = {entry["name"] for entry in tomllib.loads((MUTANTS / "expected.toml").read_text())["numeric"]}
    quoted = ", ".join(f'"{name}"' for name in sorted(names))
    return SPACE.split("MUTANT = [")[0] + f'MUTANT = [{quoted}]\n\n[default]\nIMPL = "mutant"\nMUTANT = "none"\n'


def require_whole(folder: Path, before: dict[int, tuple[str, str, str]], trials: int) -> None:
    """After its end the sweep has judged `trials`, each once, and what was recorded before is as it was."""
    with Store.open(str(folder / "studies.db"), create=False) as store:
        final = recorded(store)
        (study,) = standings.studies(store)
        told = optuna.load_study(study_name=study.name, storage=store.optuna_storage()).get_trials()
    assert before.items() <= final.items(), "what was recorded is not there any more"
    judged = {number: variant for number, (variant, verdict, _) in final.items() if Verdict(verdict).judges}
    assert len(judged) == trials, f"{len(judged)} judged, not {trials}"
    assert len(set(judged.values())) == trials, "a variant was judged twice"
    states = Counter(trial.state for trial in told)
    assert states[TrialState.RUNNING] == 0, "a trial never ended"
    complete = {trial.number for trial in told if trial.state == TrialState.COMPLETE}
    assert complete == judged.keys(), f"of Optuna's trials and ours only one side has {complete ^ judged.keys()}"
