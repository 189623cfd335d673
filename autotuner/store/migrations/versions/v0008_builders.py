"""When each build began, how many builders a run has, and which of its devices a session is of."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

FIGURES = (
    *("study_id", "recorded_at", "number", "judged", "verdict", "objective", "session_id", "baseline_us"),
    *("seconds", "build_s", "check_s", "measure_s", "revoked_at", "build_began"),
)

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Adds the columns. Of what was recorded before none of it is known."""
    op.add_column("at_trial", sa.Column("build_began", sa.DateTime))
    op.add_column("at_session", sa.Column("lane", sa.Integer))
    op.add_column("at_session", sa.Column("builders", sa.Integer))
    op.drop_index("ix_at_trial_figures", "at_trial")
    op.create_index("ix_at_trial_figures", "at_trial", list(FIGURES))
