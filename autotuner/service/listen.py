"""The web server around the application: it listens on loopback, and nowhere else."""

from __future__ import annotations

import socket
from collections.abc import Callable

import uvicorn

from autotuner.service.guard import Guard
from autotuner.values.errors import InputError

GRACE_S = 5
"""Seconds that open answers have when the server is told to end."""


def listen(application: Guard, port: int, ready: Callable[[int], None]) -> None:
    """Serves on 127.0.0.1 until the process is told to end; `ready` hears the port, once requests wait there.

    Raises InputError where the port is taken.
    """
    options = uvicorn.Config(
        application, log_level="warning", server_header=False, timeout_graceful_shutdown=GRACE_S, lifespan="on"
    )
    try:
        bound = socket.create_server(("127.0.0.1", port), backlog=128)
    except OSError as error:
        raise InputError(f"port {port}: {error.strerror or error}; choose another with --port") from None
    with bound:
        ready(int(bound.getsockname()[1]))
        uvicorn.Server(options).run([bound])
