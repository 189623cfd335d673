"""What a server is told when it starts; and who may change something: a program that shows the token, or a page whose
reader has shown it once."""

import hashlib
import hmac
import secrets
import threading
from collections import OrderedDict
from contextvars import ContextVar
from pathlib import Path

from fastapi import HTTPException, Request
from pydantic import Field
from starlette.responses import JSONResponse, RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from autotuner.values.model import Model

LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""Names under which a server on loopback is asked for."""


class Settings(Model):
    """One server: a store, and what may be done beyond reading."""

    store: str = Field(description="path or URL")
    read_only: bool = Field(default=False, description="nothing is ever written, whatever token is shown")
    token: str | None = Field(default=None, description="what a caller must show to change anything; None: nobody can")
    users: dict[str, str] = Field(default={}, description="by name the SHA-256 of the token of each user, hexadecimal")
    private: bool = Field(default=False, description="who reads must show a token, too")
    copies: tuple[str, ...] = Field(default=(), description="stores that studies may be copied into")
    hosts: tuple[str, ...] = Field(default=LOOPBACK, description="names of this server that a request may ask for")
    spaces: Path | None = Field(
        default=None, description="folder of spaces that sweeps may be asked for, beside the shipped ones"
    )

    @property
    def writes(self) -> bool:
        """Whether a caller with the token may change anything."""
        return (self.token is not None or bool(self.users)) and not self.read_only


COOKIE = "autotuner"
BEARER = {"WWW-Authenticate": "Bearer"}
READERS = 100
"""Pages' readers, at most, that are logged in at a time."""

OPERATOR = "operator"
"""Who has the server's own token."""
WHO: ContextVar[str] = ContextVar("who", default=OPERATOR)
"""Who asks for the change that is being made."""


def hashed(token: str) -> str:
    """What is kept of a token: it is random and long, so that nobody finds it by its hash."""
    return hashlib.sha256(token.encode()).hexdigest()


class Access:
    """Each token, and the readers of pages who have shown one."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._users = {OPERATOR: hashed(settings.token)} if settings.token is not None else {}
        self._users |= settings.users
        self._forms: OrderedDict[str, tuple[str, str]] = OrderedDict()
        """By cookie what the reader's forms carry, and who it is."""
        self._lock = threading.Lock()

    def _named(self, token: str) -> str | None:
        shown = hashed(token)
        return next((name for name, known in self._users.items() if hmac.compare_digest(shown, known)), None)

    def _program(self, request: Request) -> str | None:
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        return self._named(token.strip()) if kind.lower() == "bearer" else None

    def require(self, request: Request) -> None:
        """Lets a program with a token through. Raises HTTPException 403 or 401."""
        if not self._settings.writes:
            raise HTTPException(403, "this server is read-only: start it with a token to change anything")
        name = self._program(request)
        if name is None:
            raise HTTPException(401, "show the server's token: Authorization: Bearer TOKEN", BEARER)
        WHO.set(name)

    def may_read(self, request: Request) -> bool:
        """Whether a private server answers."""
        return self._program(request) is not None or self._reader(request) is not None

    def log_in(self, token: str) -> str | None:
        """A new reader's cookie; None for a wrong token."""
        name = self._named(token)
        if name is None or not (self._settings.writes or self._settings.private):
            return None
        cookie = secrets.token_urlsafe(32)
        with self._lock:
            self._forms[cookie] = secrets.token_urlsafe(32), name
            while len(self._forms) > READERS:
                self._forms.popitem(last=False)
        return cookie

    def log_out(self, request: Request) -> None:
        """Forgets the reader."""
        with self._lock:
            self._forms.pop(request.cookies.get(COOKIE, ""), None)

    def _reader(self, request: Request) -> tuple[str, str] | None:
        with self._lock:
            return self._forms.get(request.cookies.get(COOKIE, ""))

    def form_of(self, request: Request) -> str | None:
        """What the forms of this reader's pages carry; None for one who may change nothing."""
        found = self._reader(request)
        return found[0] if found is not None and self._settings.writes else None

    def require_form(self, request: Request, carried: str) -> None:
        """Lets a form of the reader's own page through. Raises HTTPException 403."""
        found = self._reader(request)
        if found is None or not hmac.compare_digest(found[0].encode(), carried.encode()):
            raise HTTPException(403, "this form is not of a page of yours: log in, and open the page again")
        WHO.set(found[1])


class Private:
    """An application around another one: who has shown no token reads nothing but the page where one does."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        answer: ASGIApp = self._app
        if scope["type"] == "http":
            request = Request(scope)
            is_open = request.url.path == "/login" or request.url.path.startswith("/static/")
            if not is_open and not self._access.may_read(request):
                answer = JSONResponse({"error": "show a token: this server is private"}, 401, BEARER)
                if "text/html" in request.headers.get("accept", "") and scope["method"] == "GET":
                    answer = RedirectResponse("/login", 303)
        await answer(scope, receive, send)
