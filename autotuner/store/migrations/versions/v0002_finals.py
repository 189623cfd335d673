"""Finals and heats, and the incumbent's time in each block."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Adds them; what is there stays as it is."""
    op.add_column("at_block", sa.Column("incumbent_us", sa.Double))
    _finals()
    _heat()


def _finals() -> None:
    op.create_table(
        "at_finals",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("study_id", sa.Integer, nullable=False),
        sa.Column("session_id", sa.Integer),
        sa.Column("started_at", sa.DateTime, nullable=False),
        sa.Column("finished_at", sa.DateTime),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("environment", sa.Text, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
        sa.Column("standing", sa.Text),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_at_finals")),
        sa.ForeignKeyConstraint(["study_id"], ["at_study.id"], name=op.f("fk_at_finals_study_id")),
        sa.ForeignKeyConstraint(["session_id"], ["at_session.id"], name=op.f("fk_at_finals_session_id")),
        sa.CheckConstraint("(finished_at IS NULL) = (standing IS NULL)", name=op.f("ck_at_finals_finished")),
    )
    op.create_index(op.f("ix_at_finals_study_id"), "at_finals", ["study_id"])


def _heat() -> None:
    op.create_table(
        "at_heat",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("study_id", sa.Integer, nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("session_id", sa.Integer),
        sa.Column("finals_id", sa.Integer),
        sa.Column("recorded_at", sa.DateTime, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_at_heat")),
        sa.ForeignKeyConstraint(["study_id"], ["at_study.id"], name=op.f("fk_at_heat_study_id")),
        sa.ForeignKeyConstraint(["session_id"], ["at_session.id"], name=op.f("fk_at_heat_session_id")),
        sa.ForeignKeyConstraint(["finals_id"], ["at_finals.id"], name=op.f("fk_at_heat_finals_id")),
        sa.CheckConstraint(
            "(kind = 'aa' AND finals_id IS NULL) OR (kind = 'finals' AND finals_id IS NOT NULL)",
            name=op.f("ck_at_heat_kind"),
        ),
    )
    op.create_index(op.f("ix_at_heat_study_id_kind"), "at_heat", ["study_id", "kind"])
    op.create_index(op.f("ix_at_heat_finals_id"), "at_heat", ["finals_id"])
