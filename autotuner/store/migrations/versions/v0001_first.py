"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Creates them all."""
    _study()
    _session()
    _trial()
    _block()
    _lease()


def _study() -> None:
    op.create_table(
        "at_study",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("space_name", sa.Text, nullable=False),
        sa.Column("space_digest", sa.String(64), nullable=False),
        sa.Column("space_document", sa.Text, nullable=False),
        sa.Column("problems", sa.Text, nullable=False),
        sa.Column("device", sa.Text, nullable=False),
        sa.Column("cache", sa.String(16), nullable=False),
        sa.Column("sampler", sa.Text, nullable=False),
        sa.Column("seed", sa.BigInteger, nullable=False),
        sa.Column("created_at", sa.DateTime, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_at_study")),
        sa.UniqueConstraint("name", name=op.f("uq_at_study_name")),
    )


def _session() -> None:
    op.create_table(
        "at_session",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("study_id", sa.Integer, nullable=False),
        sa.Column("started_at", sa.DateTime, nullable=False),
        sa.Column("finished_at", sa.DateTime),
        sa.Column("calibration", sa.Text, nullable=False),
        sa.Column("environment", sa.Text, nullable=False),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("pid", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_at_session")),
        sa.ForeignKeyConstraint(["study_id"], ["at_study.id"], name=op.f("fk_at_session_study_id")),
    )
    op.create_index(op.f("ix_at_session_study_id"), "at_session", ["study_id"])


def _trial() -> None:
    op.create_table(
        "at_trial",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("study_id", sa.Integer, nullable=False),
        sa.Column("session_id", sa.Integer, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("judged", sa.Boolean, nullable=False),
        sa.Column("variant_digest", sa.String(64), nullable=False),
        sa.Column("artifact_digest", sa.Text),
        sa.Column("program_hash", sa.Text),
        sa.Column("extension_name", sa.Text),
        sa.Column("original", sa.Text),
        sa.Column("verdict", sa.String(32), nullable=False),
        sa.Column("objective", sa.Double),
        sa.Column("median_us", sa.Double),
        sa.Column("baseline_us", sa.Double),
        sa.Column("log_low", sa.Double),
        sa.Column("log_high", sa.Double),
        sa.Column("censored", sa.Boolean, nullable=False),
        sa.Column("fault_code", sa.Text),
        sa.Column("fault_case", sa.Text),
        sa.Column("fault_detail", sa.Text),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("seconds", sa.Double, nullable=False),
        sa.Column("recorded_at", sa.DateTime, nullable=False),
        sa.Column("revoked_at", sa.DateTime),
        sa.Column("revoked_reason", sa.Text),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_at_trial")),
        sa.ForeignKeyConstraint(["study_id"], ["at_study.id"], name=op.f("fk_at_trial_study_id")),
        sa.ForeignKeyConstraint(["session_id"], ["at_session.id"], name=op.f("fk_at_trial_session_id")),
        sa.UniqueConstraint("study_id", "number", name=op.f("uq_at_trial_study_id_number")),
        sa.CheckConstraint(
            "objective IS NULL OR verdict IN ('measured', 'deduplicated', 'raced_out')",
            name=op.f("ck_at_trial_latency"),
        ),
    )
    op.create_index(
        "uq_at_trial_judged_variant",
        "at_trial",
        ["study_id", "variant_digest"],
        unique=True,
        sqlite_where=sa.text("judged"),
        postgresql_where=sa.text("judged"),
    )
    op.create_index(op.f("ix_at_trial_study_id_objective_number"), "at_trial", ["study_id", "objective", "number"])
    op.create_index(op.f("ix_at_trial_study_id_program_hash"), "at_trial", ["study_id", "program_hash"])
    op.create_index(op.f("ix_at_trial_study_id_recorded_at"), "at_trial", ["study_id", "recorded_at"])
    op.create_index(op.f("ix_at_trial_session_id"), "at_trial", ["session_id"])


def _block() -> None:
    op.create_table(
        "at_block",
        sa.Column("trial_id", sa.Integer, nullable=False),
        sa.Column("problem", sa.Integer, nullable=False),
        sa.Column("block", sa.Integer, nullable=False),
        sa.Column("variant_us", sa.Double, nullable=False),
        sa.Column("baseline_us", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("trial_id", "problem", "block", name=op.f("pk_at_block")),
        sa.ForeignKeyConstraint(["trial_id"], ["at_trial.id"], name=op.f("fk_at_block_trial_id")),
    )


def _lease() -> None:
    op.create_table(
        "at_lease",
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("boot_id", sa.Text, nullable=False),
        sa.Column("namespace", sa.Text, nullable=False),
        sa.Column("pid", sa.Integer, nullable=False),
        sa.Column("pid_started", sa.Text, nullable=False),
        sa.Column("started_at", sa.DateTime, nullable=False),
        sa.Column("heartbeat_at", sa.DateTime, nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_at_lease")),
    )
