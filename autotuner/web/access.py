"""What a server is told when it starts; and who may change something: a program that shows the token, or a page whose
reader has shown it once."""

from __future__ import annotations

import hmac
import secrets
import threading
from collections import OrderedDict
from pathlib import Path

from fastapi import HTTPException, Request
from pydantic import Field

from autotuner.values.model import Model

LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""Names under which a server on loopback is asked for."""


class Settings(Model):
    """One server: a store, and what may be done beyond reading."""

    store: str = Field(description="path or URL")
    read_only: bool = Field(default=False, description="nothing is ever written, whatever token is shown")
    token: str | None = Field(default=None, description="what a caller must show to change anything; None: nobody can")
    hosts: tuple[str, ...] = Field(default=LOOPBACK, description="names of this server that a request may ask for")
    spaces: Path | None = Field(
        default=None, description="folder of spaces that sweeps may be asked for, beside the shipped ones"
    )

    @property
    def writes(self) -> bool:
        """Whether a caller with the token may change anything."""
        return self.token is not None and not self.read_only


COOKIE = "autotuner"
READERS = 100
"""Pages' readers, at most, that are logged in at a time."""


class Access:
    """The token, and the readers of pages who have shown it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._forms: OrderedDict[str, str] = OrderedDict()
        self._lock = threading.Lock()

    def _shown(self, token: str) -> bool:
        known = self._settings.token
        return known is not None and hmac.compare_digest(token.encode(), known.encode())

    def require(self, request: Request) -> None:
        """Lets a program with the token through. Raises HTTPException 403 or 401."""
        if not self._settings.writes:
            raise HTTPException(403, "this server is read-only: start it with a token to change anything")
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not self._shown(token.strip()):
            raise HTTPException(
                401, "show the server's token: Authorization: Bearer TOKEN", {"WWW-Authenticate": "Bearer"}
            )

    def log_in(self, token: str) -> str | None:
        """A new reader's cookie; None for a wrong token."""
        if not self._settings.writes or not self._shown(token):
            return None
        cookie = secrets.token_urlsafe(32)
        with self._lock:
            self._forms[cookie] = secrets.token_urlsafe(32)
            while len(self._forms) > READERS:
                self._forms.popitem(last=False)
        return cookie

    def log_out(self, request: Request) -> None:
        """Forgets the reader."""
        with self._lock:
            self._forms.pop(request.cookies.get(COOKIE, ""), None)

    def form_of(self, request: Request) -> str | None:
        """What the forms of this reader's pages carry; None for one who has not shown the token."""
        with self._lock:
            return self._forms.get(request.cookies.get(COOKIE, ""))

    def require_form(self, request: Request, carried: str) -> None:
        """Lets a form of the reader's own page through. Raises HTTPException 403."""
        form = self.form_of(request)
        if form is None or not hmac.compare_digest(form.encode(), carried.encode()):
            raise HTTPException(403, "this form is not of a page of yours: log in, and open the page again")
