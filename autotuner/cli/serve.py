"""The command that serves a store: pages for people, an API for programs."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotuner.cli.options import StoreOption
from autotuner.cli.output import out
from autotuner.values import config
from autotuner.values.errors import InputError
from autotuner.values.files import read_regular, regular_target, why

if TYPE_CHECKING:
    from autotuner.web.access import Settings

GIVES_WAY = 10
"""The server's niceness: a sweep on the same machine comes first."""
HAND_BACK_S = 15.0
"""Seconds that workers have to hand back what they work on."""
SHORTEST = 16
"""Characters of a token, at least."""
LARGEST_BYTES = 65_536
"""Bytes of a file with a token, at most."""
MISSING = "the service needs more packages: pip install 'kernel-autotuner[service]'"


def serve(
    store: StoreOption = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="port on 127.0.0.1; 0: any that is free")] = 8760,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="nothing can be changed, whatever token is shown")
    ] = False,
    token_file: Annotated[
        Path | None, typer.Option(help=f"file with the token for changes [${config.TOKEN}]; made if it is not there")
    ] = None,
    users: Annotated[
        Path | None, typer.Option(help="file with a line a user: a name and its token's SHA-256; --add-user writes it")
    ] = None,
    add_user: Annotated[
        str | None, typer.Option("--add-user", metavar="NAME", help="adds a user to --users, prints the token and ends")
    ] = None,
    private: Annotated[bool, typer.Option("--private", help="who reads must show a token, too")] = False,
    spaces: Annotated[
        Path | None, typer.Option(help="folder of spaces that sweeps may be asked for, beside those that are shipped")
    ] = None,
    copy_to: Annotated[
        list[str] | None,
        typer.Option("--copy-to", metavar="STORE", help="a store that studies may be copied into; can be repeated"),
    ] = None,
    workers: Annotated[int, typer.Option(min=0, max=64, help="workers to start beside it, each a process")] = 0,
    name: Annotated[
        list[str] | None, typer.Option("--name", help="another name under which it is asked for; can be repeated")
    ] = None,
) -> None:
    """Serves the store's studies on this machine: pages for people, an API for programs.

    Read-only unless a token is set.
    """
    try:
        from autotuner.web.app import create_app
        from autotuner.web.listening import listen
    except ImportError as error:
        raise InputError(f"{MISSING} ({error.name} is not here)") from None
    from autotuner.web.access import LOOPBACK, Settings

    if spaces is not None and not spaces.is_dir():
        raise InputError(f"--spaces: {spaces} is not a folder")
    if workers and read_only:
        raise InputError("--workers writes to the store, and --read-only does not: leave one of them out")
    if add_user is not None:
        out.print(f"the token of {add_user}, which is kept nowhere: {_added(users, add_user)}")
        return
    settings = Settings(
        store=store or config.store_url(),
        read_only=read_only,
        token=None if read_only and not private else _token(token_file),
        users={} if users is None else _users(users),
        private=private,
        copies=tuple(copy_to or ()),
        hosts=(*LOOPBACK, *(each.lower() for each in name or ())),
        spaces=None if spaces is None else spaces.resolve(),
    )
    if private and settings.token is None and not settings.users:
        raise InputError("--private asks for a token: give --users or --token-file")
    with _beside(workers, settings.store):
        listen(create_app(settings), port, lambda bound: _say(bound, settings))


@contextmanager
def _beside(workers: int, store: str) -> Iterator[None]:
    """Workers as processes of their own, in sessions of their own: what happens to the server does not happen to them.
    When it ends in good order they hand back what they work on."""
    words, environment = [sys.executable, "-m", "autotuner", "worker"], config.with_store(store)
    started = [
        subprocess.Popen(words, stdin=subprocess.DEVNULL, env=environment, start_new_session=True)
        for _ in range(workers)
    ]
    try:
        yield
    finally:
        for each in started:
            each.terminate()
        for each in started:
            with suppress(subprocess.TimeoutExpired):
                each.wait(HAND_BACK_S)


def _say(port: int, settings: Settings) -> None:
    """What is said once it serves."""
    from autotuner.store import Store

    os.nice(GIVES_WAY)
    out.print(f"http://127.0.0.1:{port}/ serves {Store.label_of(settings.store)}; Ctrl-C ends it")
    if not settings.writes:
        out.print(f"Nothing can be changed: {'--read-only' if settings.read_only else 'no token is set'}")
    sys.stdout.flush()


def _token(path: Path | None) -> str | None:
    """The token; None where none is set. Raises InputError."""
    if path is None:
        token = config.token()
    elif os.path.lexists(path):
        token = _read(path)
    else:
        token = secrets.token_urlsafe(24)
        regular_target(path, "--token-file")
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(f"{token}\n")
    if token is not None and len(token) < SHORTEST:
        raise InputError(f"the token has {len(token)} characters, expected at least {SHORTEST}")
    return token


def _added(path: Path | None, name: str) -> str:
    """The token of a new user of that file. Raises InputError."""
    from autotuner.web.access import hashed

    if path is None or re.fullmatch(r"[\w.@-]{1,64}", name) is None:
        raise InputError("--add-user NAME needs --users FILE, and a name of letters, digits and . _ @ -")
    if os.path.lexists(path) and name in _users(path):
        raise InputError(f"--users {path} has {name} already: delete that line first")
    token = secrets.token_urlsafe(24)
    regular_target(path, "--users")
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "w") as file:
        file.write(f"{name} {hashed(token)}\n")
    return token


def _users(path: Path) -> dict[str, str]:
    """By name the hashes of a file. Raises InputError."""
    lines = [line.split() for line in _read(path, "--users").splitlines() if line.strip()]
    if not all(len(line) == 2 and re.fullmatch(r"[0-9a-f]{64}", line[1]) for line in lines):
        raise InputError(f"--users {path}: expected lines of a name and 64 hexadecimal digits; --add-user writes them")
    return {line[0]: line[1] for line in lines}


def _read(path: Path, option: str = "--token-file") -> str:
    remedy = "give a file with one line of text, or a new name to have one made"
    try:
        return read_regular(path, LARGEST_BYTES).decode().strip()
    except OSError as error:
        raise InputError(f"{option} {path}: cannot be read: {why(error)}; {remedy}") from None
    except UnicodeDecodeError:
        raise InputError(f"{option} {path}: not UTF-8 text; {remedy}") from None
