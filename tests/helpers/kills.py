"""Sweeps that are killed with kill -9, and what is left of them."""

import os
import random
import signal
import subprocess
import time
import tomllib
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from autotuner.store import Store, queries
from tests.helpers import chaos
from tests.helpers.command_line import MUTANTS, PATIENCE, SCRIPT, SPACE, in_vain, lay_out
from tests.helpers.processes import marked, wait_for_the_rest

MARK = f"MARK_OF_A_TEST={uuid.uuid4()}"
"""In the environment of what `kill` starts, and so of what that starts."""


def recorded(store: Store) -> dict[int, tuple[str, str]]:
    """Variant and verdict of each trial of the only study, where there is one."""
    return next((chaos.recorded(store, study) for study in queries.names(store)), {})


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
        assert marked(MARK), "the mark is not seen"
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()


def skip_in_vain(said: str) -> None:
    """Skips the test where a sweep says that its finals found no calm machine: they cannot be killed then."""
    if in_vain(said):
        pytest.skip("finals waited for a calm machine in vain")


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
    before: dict[int, tuple[str, str]] = {}
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
    with Store.open(str(folder / "studies.db"), create=False) as store:
        assert before.items() <= recorded(store).items(), "what was recorded is not as it was"
        (study,) = queries.names(store)
        assert chaos.require_whole_study(store, study, [before]) == trials
    wait_for_the_rest(MARK)
    return Survived(kills, trials, len(before))


def space_of_mutants() -> str:
    """A space of every numeric mutant."""
    names = {entry["name"] for entry in tomllib.loads((MUTANTS / "expected.toml").read_text())["numeric"]}
    quoted = ", ".join(f'"{name}"' for name in sorted(names))
    return SPACE.split("MUTANT = [")[0] + f'MUTANT = [{quoted}]\n\n[default]\nIMPL = "mutant"\nMUTANT = "none"\n'
