"""`autotuner serve` and `autotuner export --format html` as commands."""

import contextlib
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from autotuner.cli import serve
from autotuner.values.errors import InputError
from autotuner.web.access import Settings
from tests.helpers.refusing import refused
from tests.web.conftest import TOKEN


def test_a_token_file_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "token"
    made = serve._token(path)
    assert made == path.read_text().strip()
    assert path.stat().st_mode & 0o777 == 0o600
    assert serve._token(path) == made


def test_a_short_token_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("secret")
    with pytest.raises(InputError, match="expected at least 16"):
        serve._token(path)


def test_what_is_said_has_no_password(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(os, "nice", lambda _: 0)
    serve._say(8760, Settings(store="postgresql+psycopg://tuner:s3cret@db.example/at"))
    said = capsys.readouterr().out
    assert "postgresql+psycopg://tuner:***@db.example/at" in said
    assert "s3cret" not in said


def test_workers_hear_of_the_store_where_nobody_else_sees_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A command line can be seen by everybody on the machine, and a URL may have a password."""
    store = str(tmp_path / "s3cret.db")
    started: list[tuple[list[str], dict[str, str]]] = []

    class Started:
        """What is told of a process, without one."""

        def __init__(self, words: list[str], *, env: dict[str, str], **_: object) -> None:
            started.append((words, env))

        def terminate(self) -> None: ...

        def wait(self, timeout: float) -> int:
            return 0

    monkeypatch.setattr(subprocess, "Popen", Started)
    with serve._beside(1, store):
        ((words, environment),) = started
    assert "worker" in words
    assert not any("s3cret" in word for word in words)
    assert environment["AUTOTUNER_STORE"] == store


@pytest.mark.slow
def test_what_is_not_sent_to_its_end_is_not_waited_for(empty: Path) -> None:
    hasty = "from autotuner.web import guard, listening; guard.BODY_S = listening.HEAD_S = 0.2"
    words = [sys.executable, "-c", f"{hasty}; from autotuner.cli.app import run; run()", "serve", "--store", str(empty)]
    environment = {**os.environ, "AUTOTUNER_TOKEN": TOKEN}
    head = f"POST /api/v1/sweeps HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
    halves = {head: b"", f"{head}Content-Length: 9\r\n\r\n{{": b"HTTP/1.1 408"}
    with subprocess.Popen([*words, "--port", "0"], stdout=subprocess.PIPE, text=True, env=environment) as server:
        port = int(re.search(r":(\d+)/", server.stdout.readline()).group(1))
        for half, said in halves.items():
            with socket.create_connection(("127.0.0.1", port)) as client, contextlib.suppress(ConnectionError):
                client.sendall(half.encode())
                assert client.recv(len(said) or 1) == said
        server.terminate()


def _odd(path: Path, kind: str) -> Path:
    """A token file that holds no token; tests/values/test_files.py has more that is no file to be read."""
    if kind == "endless":
        return Path("/dev/zero")
    if kind == "dangling":
        path.symlink_to("nothing")
    else:
        path.write_bytes(b"x" * (1 + serve.LARGEST_BYTES) if kind == "large" else b"\xff\xfe" * 20)
    return path


@pytest.mark.parametrize("kind", ["endless", "large", "bytes", "dangling"])
def test_a_token_file_that_holds_no_token_is_refused_in_a_line(tmp_path: Path, kind: str) -> None:
    with refused(InputError, r"--token-file .*; give a file with one line of text"):
        serve._token(_odd(tmp_path / "token", kind))


def test_without_its_packages_the_command_says_which_to_install(made: Path) -> None:
    code = "import sys; sys.modules['fastapi'] = None; from autotuner.cli.app import run; run()"
    done = subprocess.run([sys.executable, "-c", code, "serve", "--store", str(made)], capture_output=True, text=True)
    assert done.returncode == 2
    assert re.search(r"pip install 'kernel-autotuner\[service\]'", done.stderr)
