"""What a server is told when it starts."""

from __future__ import annotations

from pathlib import Path

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
    families: Path | None = Field(default=None, description="folder of the kernel families that POST /gate may judge")

    @property
    def writes(self) -> bool:
        """Whether a caller with the token may change anything."""
        return self.token is not None and not self.read_only
