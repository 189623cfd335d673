"""A PostgreSQL server for tests; they are skipped where none is installed."""

import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

SERVER_USER = "nobody"
"""Who runs the server where the tests run as root, as whom it does not start."""
SETTINGS = "-c listen_addresses='' -c fsync=off"


def program(name: str) -> str:
    """One of the server's; Debian keeps them off the PATH."""
    installed = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    found = shutil.which(name) or (str(installed[-1]) if installed else None)
    if found is None:
        pytest.skip(f"PostgreSQL's {name} is not installed")
    return found


class Server:
    """A server in a folder of its own, reached through a socket there."""

    def __init__(self, folder: str) -> None:
        self._folder, self._data, self._pg_ctl = folder, f"{folder}/data", program("pg_ctl")
        self._user = SERVER_USER if os.getuid() == 0 else None
        if self._user is not None:
            shutil.chown(folder, self._user)
        self._done(program("initdb"), "-D", self._data, "-A", "trust", "-U", "tester", "--no-sync")

    def start(self) -> None:
        """Starts it, and waits until it answers."""
        options = f"-k {self._folder} {SETTINGS}"
        self._done(self._pg_ctl, "-D", self._data, "-o", options, "-l", f"{self._folder}/log", "-w", "start")

    def stop(self) -> None:
        """Stops it as a crash does: every connection is lost."""
        self._done(self._pg_ctl, "-D", self._data, "-m", "immediate", "-w", "stop")

    def url(self) -> str:
        """Of an empty database."""
        address = f"postgresql+psycopg://tester@/{{}}?host={self._folder}"
        name = f"t{uuid.uuid4().hex}"
        engine = create_engine(address.format("postgres"), isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(text(f"CREATE DATABASE {name}"))
        engine.dispose()
        return address.format(name)

    def _done(self, *command: str) -> None:
        subprocess.run(command, user=self._user, cwd=self._folder, check=True, stdout=subprocess.DEVNULL, timeout=60)


@contextmanager
def running() -> Iterator[Server]:
    """A server that runs while the block does."""
    with tempfile.TemporaryDirectory(prefix="pg", dir="/tmp") as folder:  # a socket's path has to be short
        server = Server(folder)
        server.start()
        yield server
        server.stop()
