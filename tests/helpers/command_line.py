"""The command line as a user runs it, and the small space of mutants that it is run on."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.helpers.files import text

SCRIPT = Path(sys.executable).parent / "autotuner"
MUTANTS = Path(__file__).parent.parent / "mutants"
SPACE = text("mutants.toml")


def lay_out(folder: Path, space: str = SPACE) -> None:
    """Puts the numeric mutants' family into a user's folder, under its own name, and a space of some as space.toml."""
    (folder / "space.toml").write_text(space)
    shutil.copytree(MUTANTS / "numeric", folder / "mutants_numeric")
    shutil.copytree(MUTANTS / "common", folder / "common")


PATIENCE = ("--patience", "0.5")
"""Half a minute: a test that waits for a calm machine in vain had better be tried again later."""
WAITING = frozenset({"tune", "finals", "validate"})
"""The commands that wait for one."""


def autotuner(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs the console script in the folder, with room for whole lines."""
    env = {**os.environ, "COLUMNS": "180", **environment}
    waits = not WAITING.isdisjoint(arguments[:1]) and "--patience" not in arguments
    command = [str(SCRIPT), *arguments, *(PATIENCE if waits else ())]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=600)


def in_vain(said: str) -> bool:
    """Whether finals say that the machine was disturbed until their patience or their time ended: they confirm nothing
    then."""
    waited = "after a wait of" in said and "nobody is crowned" in said
    return waited or "time is over before there is a result" in said


def one_line(done: subprocess.CompletedProcess[str], *words: str) -> None:
    """The command failed with exit code 2 and one line that holds these words."""
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr
