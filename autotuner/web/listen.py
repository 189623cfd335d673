"""The web server around the application: it listens on loopback, and nowhere else."""

from __future__ import annotations

import socket
from collections.abc import Callable

import uvicorn

from autotuner.values.errors import InputError
from autotuner.web.guard import Guard

GRACE_S = 5
"""Seconds that open answers have when the server is told to end."""


def listen(application: Guard, port: int, ready: Callable[[int], None]) -> None:
    """Serves on 127.0.0.1 until the process is told to end; `ready` hears the port, once requests are answered there.

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
        _Server(options, lambda: ready(int(bound.getsockname()[1]))).run([bound])


class _Server(uvicorn.Server):
    """Says when it has started: what the application reads first has been read then."""

    def __init__(self, options: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(options)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()
