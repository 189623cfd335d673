"""What every request must be, before anything looks at it: for this server, from its own pages, and not too large.

Loopback alone protects nobody: any page that a browser shows can send requests there, and a name that another server
resolves to 127.0.0.1 makes them look like its own (DNS rebinding). So the Host must be a name of this server, a request
that changes something must come from its own page or a program, and no answer may be framed or run a foreign script.
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LARGEST = 64 * 1024
"""Bytes of a request's body, at most."""
TOO_LARGE = 413, f"the body is larger than {LARGEST} bytes"
LONGEST = 4096
"""Bytes of a path with its query, at most."""
BODY_S = 10.0
"""Seconds that a request's body may take."""
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self';"
    " base-uri 'none'; frame-ancestors 'none'"
)
"""Content-Security-Policy: what a page may load, all of it from here, and nothing inline."""
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Guard:
    """An ASGI application around another one."""

    def __init__(self, app: ASGIApp, hosts: Iterable[str]) -> None:
        self._app, self._hosts = app, frozenset(name.lower() for name in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refused = self._refused(scope, Headers(scope=scope))
        if refused is not None:
            await _answer(*refused)(scope, receive, send)
            return
        if scope["method"] == "HEAD":
            scope = {**scope, "method": "GET"}  # whoever sends the answer leaves its body out
        taken, whole = 0, False
        until = asyncio.get_running_loop().time() + BODY_S

        async def guarded_send(message: Message) -> None:
            if refused is not None:
                return  # the application's answer is about a body that it has not seen to its end
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        async def guarded_receive() -> Message:
            nonlocal taken, whole, refused
            try:
                async with asyncio.timeout_at(None if whole else until):
                    message = await receive()
            except TimeoutError:
                refused = 408, f"the body has not come within {BODY_S:g} s"
                return {"type": "http.disconnect"}
            whole = not message.get("more_body", False)
            taken += len(message.get("body", b""))
            if taken > LARGEST:
                refused = TOO_LARGE
            return {"type": "http.disconnect"} if refused else message

        with suppress(ClientDisconnect):
            await self._app(scope, guarded_receive, guarded_send)
        if refused is not None:
            await _answer(*refused)(scope, receive, send)

    def _refused(self, scope: Scope, headers: Headers) -> tuple[int, str] | None:
        """Status and reason where the request is none for this server."""
        if _name_of(headers.get("host", "")) not in self._hosts:
            return 421, "this server has another name: ask for it as localhost, or start it with --name"
        if len(scope.get("raw_path") or b"") + len(scope.get("query_string", b"")) > LONGEST:
            return 414, f"the address is longer than {LONGEST} bytes"
        if scope["method"] in SAFE:
            return None
        if _foreign(headers):
            return 403, "the request comes from another site"
        length = headers.get("content-length", "0")
        if not length.isdecimal():
            return 400, "the length of the body is no number"
        return TOO_LARGE if int(length) > LARGEST else None


def _name_of(host: str) -> str:
    """The name of a Host header, without its port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _foreign(headers: Headers) -> bool:
    """Whether a browser says that a page of another origin has sent it. A program that is no browser says nothing."""
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return True
    origin = headers.get("origin")
    if origin is None:
        return False
    try:
        return urlsplit(origin).netloc.lower() != headers.get("host", "").lower()
    except ValueError:
        return True


def _answer(status: int, reason: str) -> JSONResponse:
    return JSONResponse({"error": reason}, status, {**HEADERS, "connection": "close"})
