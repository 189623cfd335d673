"""One autotuner of a machine times a device at a time; the next one waits, or is told who has it."""

import os
import pwd
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from autotuner.cli.app import app
from autotuner.devices import Chosen
from autotuner.tuning import workbench
from autotuner.tuning.run.waiting import Waiting, held
from autotuner.values.errors import InputError
from tests.helpers.command_line import lay_out

HOLDER = """
import sys, time
from autotuner.tuning.run.waiting import held
with held(sys.argv[1:], "a device", 0, print):
    print("has it", flush=True)
    sys.stdin.read()
"""


def new_name() -> str:
    """Of a device that no other test knows."""
    return f"test-{uuid.uuid4()}"


@pytest.fixture
def name() -> str:
    return new_name()


@pytest.fixture(scope="module")
def held_name() -> str:
    """Of the device that the holder has."""
    return new_name()


@pytest.fixture(scope="module")
def holder(held_name: str) -> Iterator[subprocess.Popen[str]]:
    """Another process, which has the device until the test that kills it."""
    with holding(held_name) as process:
        yield process


@contextmanager
def holding(name: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "has it\n"
        try:
            yield process
        finally:
            process.kill()


def test_the_second_one_is_told_who_has_it(held_name: str, holder: subprocess.Popen[str]) -> None:
    with pytest.raises(InputError) as raised, held([held_name], "NVIDIA X", 0, lambda _: None):
        pass
    user = pwd.getpwuid(os.getuid()).pw_name
    said = rf"NVIDIA X is timed by \S+ \(pid {holder.pid}\) of {user}: wait for it, or stop it"
    assert re.fullmatch(said, str(raised.value))


def test_tune_asks_for_its_devices(
    held_name: str, holder: subprocess.Popen[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def locked(*arguments: Any) -> Chosen:
        return choose_device(*arguments)._replace(locks=(held_name,))

    choose_device = workbench.choose_device
    monkeypatch.setattr(workbench, "choose_device", locked)
    monkeypatch.chdir(tmp_path)
    lay_out(tmp_path)
    done = CliRunner().invoke(app, ["tune", "space.toml", "--patience", "0", "--store", "studies.db"])
    assert isinstance(done.exception, InputError)
    assert f"(pid {holder.pid})" in str(done.exception)


def test_the_second_one_waits_its_turn(name: str) -> None:
    heard: list[Waiting] = []
    with holding(name) as other:

        def listen(event: Waiting) -> None:
            heard.append(event)
            assert other.stdin is not None
            if len(heard) == 2:
                other.stdin.close()

        with held([name], "a device", 100, listen):
            assert len(heard) >= 2
    assert heard[0].since_s < heard[1].since_s


def test_other_devices_are_free(held_name: str, holder: subprocess.Popen[str]) -> None:
    with held([f"{held_name}-other"], "a device", 0, lambda _: None):
        pass
    with pytest.raises(InputError), held([f"{held_name}-other", held_name], "devices", 0, lambda _: None):
        pass
    with held([f"{held_name}-other"], "a device", 0, lambda _: None):  # which was given back
        pass


def test_one_that_was_killed_leaves_nothing_behind(held_name: str, holder: subprocess.Popen[str]) -> None:
    holder.kill()
    holder.wait()
    with held([held_name], "a device", 0, lambda _: None):
        pass


def test_processes_that_the_holder_starts_do_not_keep_it(name: str) -> None:
    """Neither the fork server and what it forks, nor a compiler."""
    context = get_context("forkserver")
    with held([name], "a device", 0, lambda _: None):
        ours, theirs = context.Pipe()
        forked = context.Process(target=wait_for_the_end, args=(theirs,), daemon=True)
        forked.start()
        theirs.close()
        compiler = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, close_fds=False)
        assert ours.recv() == "here"
    try:
        with held([name], "a device", 0, lambda _: None):
            pass
    finally:
        ours.close()
        forked.join()
        compiler.communicate(b"\n")


def wait_for_the_end(pipe: Connection) -> None:
    """What a forked process does here."""
    pipe.send("here")
    try:
        pipe.recv()
    except EOFError:
        return


def test_no_lock_lies_in_a_folder(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with held([name], "a device", 0, lambda _: None):
        assert list(tmp_path.iterdir()) == []
