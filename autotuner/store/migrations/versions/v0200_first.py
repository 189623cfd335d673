"""The tables of 0.2."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0200"
down_revision = None

NAMES = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s",
    "pk": "pk_%(table_name)s",
}


def upgrade() -> None:
    """Creates them all."""
    tables = sa.MetaData(naming_convention=NAMES)
    _studies(tables)
    _trials(tables)
    _finals(tables)
    _sweeps(tables)
    tables.create_all(op.get_bind())


def _key() -> sa.Column[int]:
    return sa.Column("id", sa.Integer, primary_key=True)


def _owner(name: str, table: str, nullable: bool = False) -> sa.Column[int]:
    return sa.Column(name, sa.Integer, sa.ForeignKey(f"{table}.id"), nullable=nullable)


def _all(kind: sa.types.TypeEngine[Any], *names: str) -> list[sa.Column[Any]]:
    """Columns that each row has."""
    return [sa.Column(name, kind, nullable=False) for name in names]


def _some(kind: sa.types.TypeEngine[Any], *names: str) -> list[sa.Column[Any]]:
    """Columns that may be empty."""
    return [sa.Column(name, kind) for name in names]


def _studies(tables: sa.MetaData) -> None:
    sa.Table(
        "at_study",
        tables,
        _key(),
        *_all(sa.Text(), "name", "space_name"),
        *_all(sa.String(64), "space_digest"),
        *_all(sa.Text(), "space_document", "problems", "device"),
        *_all(sa.String(16), "cache"),
        *_all(sa.Text(), "sampler"),
        *_all(sa.BigInteger(), "seed"),
        *_all(sa.DateTime(), "created_at"),
        sa.UniqueConstraint("name"),
    )
    sa.Table(
        "at_session",
        tables,
        _key(),
        _owner("study_id", "at_study"),
        *_all(sa.DateTime(), "started_at"),
        *_some(sa.DateTime(), "finished_at"),
        *_all(sa.Text(), "calibration", "environment", "host"),
        *_all(sa.Integer(), "pid", "lane", "builders"),
        sa.Index(None, "study_id"),
    )
    sa.Table(
        "at_validation",
        tables,
        _key(),
        _owner("study_id", "at_study"),
        *_all(sa.DateTime(), "recorded_at"),
        *_all(sa.Text(), "host", "environment", "document"),
        sa.Index(None, "study_id"),
    )


def _trials(tables: sa.MetaData) -> None:
    sa.Table(
        "at_trial",
        tables,
        _key(),
        _owner("study_id", "at_study"),
        _owner("session_id", "at_session"),
        *_all(sa.Integer(), "number"),
        *_all(sa.Boolean(), "judged"),
        *_all(sa.String(64), "variant_digest"),
        *_some(sa.Text(), "artifact_digest", "program_hash", "extension_name", "original"),
        *_all(sa.String(32), "verdict"),
        *_some(sa.Double(), "objective", "median_us", "baseline_us", "log_low", "log_high"),
        *_all(sa.Boolean(), "censored"),
        *_some(sa.Text(), "fault_code", "fault_case", "fault_detail"),
        *_all(sa.Text(), "outcome"),
        *_all(sa.Double(), "seconds", "build_s", "check_s", "measure_s"),
        *_some(sa.DateTime(), "build_began"),
        *_all(sa.DateTime(), "recorded_at"),
        *_some(sa.DateTime(), "revoked_at"),
        *_some(sa.Text(), "revoked_reason"),
        sa.UniqueConstraint("study_id", "number"),
        sa.CheckConstraint("objective IS NULL OR verdict IN ('measured', 'deduplicated', 'raced_out')", name="latency"),
        sa.Index(
            "uq_at_trial_judged_variant",
            "study_id",
            "variant_digest",
            unique=True,
            sqlite_where=sa.text("judged"),
            postgresql_where=sa.text("judged"),
        ),
        sa.Index(None, "study_id", "objective", "number"),
        sa.Index(None, "study_id", "program_hash"),
        sa.Index(None, "study_id", "recorded_at"),
        sa.Index(None, "session_id"),
        sa.Index(
            "ix_at_trial_figures",
            *("study_id", "recorded_at", "number", "judged", "verdict", "objective", "session_id", "baseline_us"),
            *("seconds", "build_s", "check_s", "measure_s", "revoked_at", "build_began"),
        ),
        sa.Index(
            "ix_at_trial_variants", "study_id", "variant_digest", "judged", "objective", "revoked_at", "median_us"
        ),
    )
    sa.Table(
        "at_parameter",
        tables,
        sa.Column("trial_id", sa.Integer, sa.ForeignKey("at_trial.id"), primary_key=True),
        sa.Column("name", sa.Text, primary_key=True),
        *_some(sa.BigInteger(), "number"),
        *_some(sa.Text(), "word"),
        sa.CheckConstraint("(number IS NULL) <> (word IS NULL)", name="value"),
        sa.Index("ix_at_parameter_values", "trial_id", "name", "number", "word"),
    )
    sa.Table(
        "at_block",
        tables,
        sa.Column("trial_id", sa.Integer, sa.ForeignKey("at_trial.id"), primary_key=True),
        sa.Column("problem", sa.Integer, primary_key=True),
        sa.Column("block", sa.Integer, primary_key=True),
        *_all(sa.Double(), "variant_us", "baseline_us"),
        *_some(sa.Double(), "incumbent_us"),
    )


def _finals(tables: sa.MetaData) -> None:
    sa.Table(
        "at_finals",
        tables,
        _key(),
        _owner("study_id", "at_study"),
        _owner("session_id", "at_session", nullable=True),
        *_all(sa.DateTime(), "started_at"),
        *_some(sa.DateTime(), "finished_at"),
        *_all(sa.Text(), "host", "environment", "document"),
        *_some(sa.Text(), "standing"),
        sa.CheckConstraint("(finished_at IS NULL) = (standing IS NULL)", name="finished"),
        sa.Index(None, "study_id"),
    )
    sa.Table(
        "at_heat",
        tables,
        _key(),
        _owner("study_id", "at_study"),
        *_all(sa.String(16), "kind"),
        _owner("session_id", "at_session", nullable=True),
        _owner("finals_id", "at_finals", nullable=True),
        *_all(sa.DateTime(), "recorded_at"),
        *_all(sa.Text(), "document"),
        sa.CheckConstraint(
            "(kind = 'aa' AND finals_id IS NULL) OR (kind = 'finals' AND finals_id IS NOT NULL)", name="kind"
        ),
        sa.Index(None, "study_id", "kind"),
        sa.Index(None, "finals_id"),
    )


def _sweeps(tables: sa.MetaData) -> None:
    sa.Table(
        "at_lease",
        tables,
        sa.Column("name", sa.Text, primary_key=True),
        *_all(sa.String(32), "token"),
        *_all(sa.Text(), "host", "machine", "boot_id", "namespace"),
        *_all(sa.Integer(), "pid"),
        *_all(sa.Text(), "pid_started"),
        *_all(sa.DateTime(), "started_at", "heartbeat_at"),
        *_all(sa.Text(), "doing"),
    )
    sa.Table(
        "at_sweep",
        tables,
        _key(),
        *_some(sa.Text(), "key", "study", "found"),
        *_some(sa.Integer(), "group_id"),
        *_all(sa.Text(), "name"),
        *_all(sa.String(16), "state"),
        *_some(sa.String(16), "wish"),
        *_all(sa.Integer(), "priority"),
        *_all(sa.Text(), "backend", "request"),
        *_all(sa.Boolean(), "foreground"),
        *_all(sa.Text(), "detail"),
        *_all(sa.Integer(), "attempts"),
        *_all(sa.Double(), "spent_s"),
        *_all(sa.DateTime(), "submitted_at"),
        *_some(sa.DateTime(), "started_at", "finished_at", "not_before"),
        sa.UniqueConstraint("key"),
        sa.CheckConstraint("state IN ('queued', 'running', 'paused', 'done', 'cancelled', 'failed')", name="state"),
        sa.CheckConstraint("(finished_at IS NULL) = (state IN ('queued', 'running', 'paused'))", name="finished"),
        sa.Index(None, "state", "priority", "id"),
        sa.Index(None, "group_id"),
    )
    sa.Table(
        "at_event",
        tables,
        _key(),
        *_all(sa.DateTime(), "at"),
        _owner("sweep_id", "at_sweep", nullable=True),
        *_some(sa.Text(), "device"),
        *_all(sa.String(32), "kind"),
        *_all(sa.Text(), "text", "data"),
        sa.Index(None, "sweep_id", "id"),
    )
    sa.Table(
        "at_device",
        tables,
        sa.Column("name", sa.Text, primary_key=True),
        *_all(sa.Text(), "host", "backend", "model", "words"),
        *_all(sa.String(16), "health"),
        *_all(sa.Text(), "reason", "remedy"),
        *_all(sa.DateTime(), "changed_at", "seen_at"),
    )
