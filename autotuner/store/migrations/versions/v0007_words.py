"""Devices with what `--devices` calls them, so that everybody can tell which worker a sweep waits for."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Adds the column. A device has no such words until it is served again."""
    op.add_column("at_device", sa.Column("words", sa.Text, nullable=False, server_default="[]"))
