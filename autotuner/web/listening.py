"""The server that listens for the application, on loopback and nowhere else."""

import asyncio
import socket
from collections.abc import Callable

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from autotuner.values.errors import InputError
from autotuner.web.guard import Guard

GRACE_S = 5
"""Seconds that open answers have when the server is told to end."""
HEAD_S = 10.0
"""Seconds that a connection may be open, or open again, without the whole head of a request; twice that at most."""
CONNECTIONS = 200
"""Open connections; whoever asks over one more is told to come again (503)."""


def listen(application: Guard, port: int, ready: Callable[[int], None]) -> None:
    """Serves on 127.0.0.1 until the process is told to end; `ready` hears the port, once requests are answered there.

    Raises InputError where the port is taken.
    """
    options = uvicorn.Config(
        application,
        http=_Impatient,
        limit_concurrency=CONNECTIONS,
        log_level="warning",
        server_header=False,
        timeout_graceful_shutdown=GRACE_S,
        lifespan="on",
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


class _Impatient(H11Protocol):
    """Closes a connection over which no whole head of a request comes; uvicorn waits for one without an end."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Looks at it from time to time."""
        super().connection_made(transport)
        self.loop.call_later(HEAD_S, self._look, None)

    def _look(self, last: object) -> None:
        """`last`: the request that was answered last when it was looked at before."""
        waits = self.cycle is None or self.cycle.response_complete
        if waits and self.cycle is last:
            self.transport.abort()
        elif not self.transport.is_closing():
            self.loop.call_later(HEAD_S, self._look, self.cycle)
