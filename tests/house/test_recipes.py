"""The recipes for service managers (examples/hosts), as far as they can be checked without these."""

import os
import re
import select
import shlex
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml  # type: ignore[import-untyped, unused-ignore]

from autotuner.cli.app import app
from tests.helpers.stores import locked

HOSTS = Path(__file__).parent.parent.parent / "examples" / "hosts"
UNIT, BATCH, SET = HOSTS / "autotuner-worker.service", HOSTS / "worker.sbatch", HOSTS / "worker.yaml"


def options_of(words: list[str]) -> set[str]:
    """The options of a command line that its command does not have."""
    command: Any = typer.main.get_command(app)
    found = command.commands[words[0]]
    known = {name for option in found.params for name in option.opts}
    return {word for word in words if word.startswith("--")} - known


QUICK = """
from autotuner.store import Store
from autotuner.jobs import worker
from autotuner.jobs.signals import StopSignal

worker.BEAT_S = 0.1
stop = StopSignal()
with stop.listening(), Store.open("studies.db") as store:
    store.database.wait_s = 0.1
    worker.Worker(store, worker.served("cpu"), cache_bytes=None, stop=stop).run()
"""
"""A worker that beats at each look for a sweep."""


def told(manager: socket.socket) -> str:
    """What a service tells its manager next."""
    return manager.recv(100).decode()


def all_told(manager: socket.socket) -> list[str]:
    """What it has told already."""
    found = []
    while select.select([manager], [], [], 0)[0]:
        found.append(told(manager))
    return found


@pytest.mark.slow
def test_a_worker_tells_the_manager_of_the_unit_that_it_lives(tmp_path: Path) -> None:
    """As `Type=notify` and `WatchdogSec` ask for: once it serves, whenever it beats, also while it waits for the store,
    and when it ends."""
    assert {"Type=notify", "NotifyAccess=main"} < {*UNIT.read_text().split()}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(120)
        command = [sys.executable, "-c", QUICK]
        with subprocess.Popen(command, cwd=tmp_path, env={**os.environ, "NOTIFY_SOCKET": f"{tmp_path}/notify"}) as one:
            try:
                assert told(manager) == "READY=1"
                assert [told(manager) for _ in range(2)] == ["WATCHDOG=1"] * 2
                with locked(tmp_path / "studies.db"):
                    time.sleep(0.5)  # for what it says of its last beat
                    all_told(manager)
                    assert told(manager) == "WATCHDOG=1"
                one.terminate()
                assert one.wait() == 0
            finally:
                one.kill()  # nothing, once it has ended
        assert all_told(manager)[-1] == "STOPPING=1"


def test_the_recipes_call_commands_with_options_that_exist() -> None:
    container = yaml.safe_load(SET.read_text())["spec"]["template"]["spec"]["containers"][0]
    lines = [container["command"]]
    for path in (UNIT, BATCH, HOSTS / "autotuner-serve.service"):
        found = re.findall(
            r"^(?:ExecStart=/usr/bin/env|\s*) ?(autotuner \w+ .*?)(?: &)?$", path.read_text(), re.MULTILINE
        )
        lines += [shlex.split(line) for line in found]
    script = (HOSTS / "nightly.sh").read_text()
    lines += [shlex.split(line) for line in re.findall(r"autotuner (?:tune|regress)[^&\n]*", script)]
    assert len(lines) == 6
    for program, *words in lines:
        assert program == "autotuner"
        assert options_of(words) == set()
