"""Leases say on which machine their holder is: hosts may share a name."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Adds the column. Of the leases that are there it is not known."""
    op.add_column("at_lease", sa.Column("machine", sa.Text, nullable=False, server_default=""))
