"""Validations: variants on problems that were not tuned."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Adds their table."""
    op.create_table(
        "at_validation",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("study_id", sa.Integer, nullable=False),
        sa.Column("recorded_at", sa.DateTime, nullable=False),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("environment", sa.Text, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
        sa.ForeignKeyConstraint(["study_id"], ["at_study.id"], name=op.f("fk_at_validation_study_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_at_validation")),
    )
    op.create_index(op.f("ix_at_validation_study_id"), "at_validation", ["study_id"])
