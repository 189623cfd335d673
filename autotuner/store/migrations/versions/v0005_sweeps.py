"""Sweeps as jobs, their events, and devices. Leases are of a study, a sweep or a device, no more of a whole store."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

STATES = "state IN ('queued', 'running', 'paused', 'done', 'cancelled', 'failed')"
FIGURES = (
    *("study_id", "recorded_at", "number", "judged", "verdict", "objective", "session_id", "baseline_us"),
    *("seconds", "build_s", "check_s", "measure_s", "revoked_at"),
)
VARIANTS = ("study_id", "variant_digest", "judged", "objective", "revoked_at", "median_us")

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Adds them. Who drives now is forgotten: a driver of an earlier version stops at its next renewal."""
    _trial()
    op.drop_table("at_lease")
    _lease()
    _sweep()
    _event()
    _device()


def _trial() -> None:
    """What each stage of a trial took. Of trials that are there it is not known apart from their outcomes."""
    for name in ("build_s", "check_s", "measure_s"):
        op.add_column("at_trial", sa.Column(name, sa.Double))
    op.create_index("ix_at_trial_figures", "at_trial", list(FIGURES))
    op.create_index("ix_at_trial_variants", "at_trial", list(VARIANTS))
    op.create_index("ix_at_parameter_values", "at_parameter", ["trial_id", "name", "number", "word"])


def _lease() -> None:
    op.create_table(
        "at_lease",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("token", sa.String(32), nullable=False),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("boot_id", sa.Text, nullable=False),
        sa.Column("namespace", sa.Text, nullable=False),
        sa.Column("pid", sa.Integer, nullable=False),
        sa.Column("pid_started", sa.Text, nullable=False),
        sa.Column("started_at", sa.DateTime, nullable=False),
        sa.Column("heartbeat_at", sa.DateTime, nullable=False),
        sa.Column("doing", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_at_lease")),
    )


def _sweep() -> None:
    op.create_table(
        "at_sweep",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("key", sa.Text),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("wish", sa.String(16)),
        sa.Column("priority", sa.Integer, nullable=False),
        sa.Column("backend", sa.Text, nullable=False),
        sa.Column("request", sa.Text, nullable=False),
        sa.Column("foreground", sa.Boolean, nullable=False),
        sa.Column("studies", sa.Text, nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("spent_s", sa.Double, nullable=False),
        sa.Column("submitted_at", sa.DateTime, nullable=False),
        sa.Column("started_at", sa.DateTime),
        sa.Column("finished_at", sa.DateTime),
        sa.Column("not_before", sa.DateTime),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_at_sweep")),
        sa.UniqueConstraint("key", name=op.f("uq_at_sweep_key")),
        sa.CheckConstraint(STATES, name=op.f("ck_at_sweep_state")),
        sa.CheckConstraint(
            "(finished_at IS NULL) = (state IN ('queued', 'running', 'paused'))", name=op.f("ck_at_sweep_finished")
        ),
    )
    op.create_index(op.f("ix_at_sweep_state_priority_id"), "at_sweep", ["state", "priority", "id"])


def _event() -> None:
    op.create_table(
        "at_event",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("at", sa.DateTime, nullable=False),
        sa.Column("sweep_id", sa.Integer),
        sa.Column("device", sa.Text),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("data", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_at_event")),
        sa.ForeignKeyConstraint(["sweep_id"], ["at_sweep.id"], name=op.f("fk_at_event_sweep_id")),
    )
    op.create_index(op.f("ix_at_event_sweep_id_id"), "at_event", ["sweep_id", "id"])


def _device() -> None:
    op.create_table(
        "at_device",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("backend", sa.Text, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("health", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("remedy", sa.Text, nullable=False),
        sa.Column("changed_at", sa.DateTime, nullable=False),
        sa.Column("seen_at", sa.DateTime, nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_at_device")),
    )
