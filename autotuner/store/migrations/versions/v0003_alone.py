"""Heats of one finalist, or of the baseline alone, and standings with proofs: no table changes, but the documents in
them do, and programs that know only earlier ones must not read them."""

from __future__ import annotations

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """What is there stays as it is."""
