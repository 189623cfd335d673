"""The command that serves a store: pages for people, an API for programs."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Annotated

import typer

from autotuner.cli.options import StoreOption, StudyName
from autotuner.cli.output import out
from autotuner.values import config
from autotuner.values.errors import InputError
from autotuner.values.files import regular_target, write_atomically

GIVES_WAY = 10
"""The server's niceness: a sweep on the same machine comes first."""
SHORTEST = 16
"""Characters of a token, at least."""
MISSING = "the service needs more packages: pip install 'autotuner[service]'"


def serve(
    store: StoreOption = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="port on 127.0.0.1; 0: any that is free")] = 8760,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="nothing can be changed, whatever token is shown")
    ] = False,
    token_file: Annotated[
        Path | None,
        typer.Option(help=f"file with the token for changes [${config.TOKEN}]; made if it is not there"),
    ] = None,
    families: Annotated[
        Path | None, typer.Option(help="folder of kernel families that POST /gate may judge, with the token")
    ] = None,
    name: Annotated[
        list[str] | None, typer.Option("--name", help="another name under which it is asked for; can be repeated")
    ] = None,
) -> None:
    """Serves the store's studies on this machine: pages for people, an API for programs. Read-only unless a token is
    set."""
    try:
        import uvicorn

        from autotuner.service.app import create_app
    except ImportError as error:
        raise InputError(f"{MISSING} ({error.name} is not here)") from None
    from autotuner.service.settings import LOOPBACK, Settings

    if families is not None and not families.is_dir():
        raise InputError(f"--families: {families} is not a folder")
    settings = Settings(
        store=store or config.store_url(),
        read_only=read_only,
        token=None if read_only else _token(token_file),
        hosts=(*LOOPBACK, *(each.lower() for each in name or ())),
        families=None if families is None else families.resolve(),
    )
    application = create_app(settings)
    os.nice(GIVES_WAY)
    options = uvicorn.Config(application, host="127.0.0.1", port=port, log_level="warning", server_header=False)
    server = uvicorn.Server(options)
    bound = options.bind_socket()
    out.print(f"http://127.0.0.1:{bound.getsockname()[1]}/ serves {settings.store}; Ctrl-C ends it")
    if not settings.writes:
        out.print("Nothing can be changed: no token is set" if not read_only else "Nothing can be changed: --read-only")
    server.run([bound])


def _token(path: Path | None) -> str | None:
    """The token; None where none is set."""
    if path is None:
        token = config.token()
    elif path.exists():
        token = path.read_text().strip()
    else:
        token = secrets.token_urlsafe(24)
        regular_target(path, "--token-file")
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(f"{token}\n")
    if token is not None and len(token) < SHORTEST:
        raise InputError(f"the token has {len(token)} characters, expected at least {SHORTEST}")
    return token


def page(
    study: StudyName = None,
    output: Annotated[Path, typer.Option("--out", help="the file to write")] = Path("study.html"),
    store: StoreOption = None,
) -> None:
    """Writes a study's pages as one HTML file that needs no server."""
    try:
        from autotuner.service import whole_page
    except ImportError as error:
        raise InputError(f"{MISSING} ({error.name} is not here)") from None
    from autotuner.service.reader import Reader
    from autotuner.store import Store, queries

    regular_target(output, "--out")
    with Store.open(store or config.store_url(), read_only=True) as opened:
        snapshot = Reader(opened).study(queries.resolve_study(opened, study))
        text = whole_page.render(snapshot, opened.label, (config.kernels_dir(),))
    write_atomically(output, text)
    out.print(f"{snapshot.name}: written to {output}")
