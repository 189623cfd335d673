"""Our tables. They lie beside Optuna's in one database; every name begins with `at_`, which none of Optuna's does.

Documents (devices, outcomes, requests) are JSON in text columns, because an outcome may hold NaN and infinity, which
the JSON types of databases refuse; in a row they are the values that they stand for. What queries filter or sort by is
a column of its own.
"""

from datetime import UTC, datetime
from typing import Any, ClassVar

import sqlalchemy as sa
from pydantic import JsonValue, TypeAdapter
from sqlalchemy.orm import DeclarativeBase, Mapped, declared_attr, mapped_column

import autotuner.ops  # noqa: F401  # stored problems become those of their op
from autotuner.store.records import FinalsResult, Lineup, Validation
from autotuner.values.outcome import Calibration, Device, Heat, Outcome
from autotuner.values.profile import Profile
from autotuner.values.sweep import Found, SweepRequest

SCHEMA = "0200"
"""The schema of 0.2.0, the first release. What was written before has another one, 0001 to 0009. A new store is made
from these tables; the first change of them is the first migration, from this schema on: Optuna brings Alembic, and
`at_version` has the form of its own table of versions."""

_NAMES = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s",
    "pk": "pk_%(table_name)s",
}


class UtcDateTime(sa.TypeDecorator[datetime]):
    """An aware datetime, stored in UTC without its zone (SQLite knows none)."""

    impl = sa.DateTime
    cache_ok = True

    def process_bind_param(self, value: datetime | None, _dialect: sa.Dialect) -> datetime | None:
        return None if value is None else value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, _dialect: sa.Dialect) -> datetime | None:
        return None if value is None else value.replace(tzinfo=UTC)


class Document(sa.TypeDecorator[Any]):
    """A value as JSON text."""

    impl = sa.Text
    cache_ok = True

    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.kind = kind
        self._adapter = TypeAdapter(kind)

    def process_bind_param(self, value: Any, _dialect: sa.Dialect) -> str | None:
        return None if value is None else self._adapter.dump_json(value).decode()

    def process_result_value(self, value: str | None, _dialect: sa.Dialect) -> Any:
        return None if value is None else self._adapter.validate_json(value)


Words = dict[str, str]
Data = dict[str, JsonValue]
_DOCUMENTS = (
    *(Calibration, Device, FinalsResult, Found, Heat, Lineup, Outcome, Profile, SweepRequest, Validation),
    *(Words, Data),
)


class Base(DeclarativeBase):
    """Root of our tables."""

    @declared_attr.directive
    def __tablename__(cls) -> str:
        """`at_` and what a row is."""
        return f"at_{cls.__name__.removesuffix('Row').lower()}"

    metadata = sa.MetaData(naming_convention=_NAMES)
    type_annotation_map: ClassVar[dict[Any, Any]] = {
        **{datetime: UtcDateTime, float: sa.Double, str: sa.Text, tuple[str, ...]: Document(tuple[str, ...])},
        **{kind: Document(kind) for kind in _DOCUMENTS},
    }


class VersionRow(Base):
    """Which schema the store has."""

    version_num: Mapped[str] = mapped_column(sa.String(32), primary_key=True)


class StudyRow(Base):
    """A study; `name` is the name of the Optuna study too."""

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    space_name: Mapped[str]
    space_digest: Mapped[str] = mapped_column(sa.String(64))
    space_document: Mapped[str]
    problems: Mapped[str]
    device: Mapped[Device]
    cache: Mapped[str] = mapped_column(sa.String(16))
    sampler: Mapped[str]
    seed: Mapped[int] = mapped_column(sa.BigInteger)
    created_at: Mapped[datetime]


class SessionRow(Base):
    """A run of the driver on a study."""

    id: Mapped[int] = mapped_column(primary_key=True)
    study_id: Mapped[int] = mapped_column(sa.ForeignKey("at_study.id"), index=True)
    started_at: Mapped[datetime]
    finished_at: Mapped[datetime | None]
    calibration: Mapped[Calibration]
    environment: Mapped[Words]
    host: Mapped[str]
    pid: Mapped[int]
    lane: Mapped[int]
    builders: Mapped[int]


class TrialRow(Base):
    """A judged trial (or one whose judging failed for a fault of ours: `judged` is false then)."""

    __table_args__ = (
        sa.UniqueConstraint("study_id", "number"),
        # A variant is judged once a study; after a fault of ours it may be tried again.
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
        # All that figures are made of, and from which studies are compared, so that no outcome is read for them.
        sa.Index(
            "ix_at_trial_figures",
            *("study_id", "recorded_at", "number", "judged", "verdict", "objective", "session_id", "baseline_us"),
            *("seconds", "build_s", "check_s", "measure_s", "revoked_at", "build_began"),
        ),
        sa.Index(
            "ix_at_trial_variants", *("study_id", "variant_digest", "judged", "objective", "revoked_at", "median_us")
        ),
        # The hard gate as a rule of the database: a rejected variant cannot have an objective.
        sa.CheckConstraint("objective IS NULL OR verdict IN ('measured', 'deduplicated', 'raced_out')", name="latency"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    study_id: Mapped[int] = mapped_column(sa.ForeignKey("at_study.id"))
    session_id: Mapped[int] = mapped_column(sa.ForeignKey("at_session.id"), index=True)
    number: Mapped[int]
    judged: Mapped[bool]
    variant_digest: Mapped[str] = mapped_column(sa.String(64))
    artifact_digest: Mapped[str | None]
    program_hash: Mapped[str | None]
    extension_name: Mapped[str | None]
    original: Mapped[str | None]
    verdict: Mapped[str] = mapped_column(sa.String(32))
    objective: Mapped[float | None]
    median_us: Mapped[float | None]
    baseline_us: Mapped[float | None]
    log_low: Mapped[float | None]
    log_high: Mapped[float | None]
    censored: Mapped[bool]
    fault_code: Mapped[str | None]
    fault_case: Mapped[str | None]
    fault_detail: Mapped[str | None]
    outcome: Mapped[Outcome]
    seconds: Mapped[float]
    build_s: Mapped[float]
    check_s: Mapped[float]
    measure_s: Mapped[float]
    build_began: Mapped[datetime | None]
    recorded_at: Mapped[datetime]
    revoked_at: Mapped[datetime | None]
    revoked_reason: Mapped[str | None]


class ParameterRow(Base):
    """The value of a parameter of a trial's variant, IMPL included: a number or a word."""

    __table_args__ = (
        sa.CheckConstraint("(number IS NULL) <> (word IS NULL)", name="value"),
        sa.Index("ix_at_parameter_values", "trial_id", "name", "number", "word"),
    )

    trial_id: Mapped[int] = mapped_column(sa.ForeignKey("at_trial.id"), primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    number: Mapped[int | None] = mapped_column(sa.BigInteger)
    word: Mapped[str | None]


class BlockRow(Base):
    """One interleaved block of one problem, as it was measured."""

    trial_id: Mapped[int] = mapped_column(sa.ForeignKey("at_trial.id"), primary_key=True)
    problem: Mapped[int] = mapped_column(primary_key=True)
    block: Mapped[int] = mapped_column(primary_key=True)
    variant_us: Mapped[float]
    baseline_us: Mapped[float]
    incumbent_us: Mapped[float | None]


class FinalsRow(Base):
    """Finals of a study; `standing` is their result once they are over."""

    __table_args__ = (sa.CheckConstraint("(finished_at IS NULL) = (standing IS NULL)", name="finished"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    study_id: Mapped[int] = mapped_column(sa.ForeignKey("at_study.id"), index=True)
    session_id: Mapped[int | None] = mapped_column(sa.ForeignKey("at_session.id"))
    started_at: Mapped[datetime]
    finished_at: Mapped[datetime | None]
    host: Mapped[str]
    environment: Mapped[Words]
    document: Mapped[Lineup]
    standing: Mapped[FinalsResult | None]


class HeatRow(Base):
    """A heat: one of the finals, or an A/A race of a session; with its raw times."""

    __table_args__ = (
        sa.Index(None, "study_id", "kind"),
        sa.CheckConstraint(
            "(kind = 'aa' AND finals_id IS NULL) OR (kind = 'finals' AND finals_id IS NOT NULL)", name="kind"
        ),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    study_id: Mapped[int] = mapped_column(sa.ForeignKey("at_study.id"))
    kind: Mapped[str] = mapped_column(sa.String(16))
    session_id: Mapped[int | None] = mapped_column(sa.ForeignKey("at_session.id"))
    finals_id: Mapped[int | None] = mapped_column(sa.ForeignKey("at_finals.id"), index=True)
    recorded_at: Mapped[datetime]
    document: Mapped[Heat]


class ValidationRow(Base):
    """A variant on problems that were not tuned; with its raw times."""

    id: Mapped[int] = mapped_column(primary_key=True)
    study_id: Mapped[int] = mapped_column(sa.ForeignKey("at_study.id"), index=True)
    recorded_at: Mapped[datetime]
    host: Mapped[str]
    environment: Mapped[Words]
    document: Mapped[Validation]


class ProfileRow(Base):
    """What hardware counters said of a trial; the last of a trial counts. A store that was made before this table gets
    it with its first profile."""

    id: Mapped[int] = mapped_column(primary_key=True)
    trial_id: Mapped[int] = mapped_column(sa.ForeignKey("at_trial.id"), index=True)
    document: Mapped[Profile]


class LeaseRow(Base):
    """Who has a study, a sweep or a device now: a process that lives, or one that died without saying so."""

    name: Mapped[str] = mapped_column(primary_key=True)
    token: Mapped[str] = mapped_column(sa.String(32))
    host: Mapped[str]
    machine: Mapped[str]
    boot_id: Mapped[str]
    namespace: Mapped[str]
    pid: Mapped[int]
    pid_started: Mapped[str]
    started_at: Mapped[datetime]
    heartbeat_at: Mapped[datetime]
    doing: Mapped[str]


class SweepRow(Base):
    """A sweep that somebody has asked for; later changes of a file do not touch its `request`. `group_id` is the first
    sweep of its group; `found` is as its last run left it."""

    __table_args__ = (
        sa.UniqueConstraint("key"),
        sa.Index(None, "state", "priority", "id"),
        sa.CheckConstraint("state IN ('queued', 'running', 'paused', 'done', 'cancelled', 'failed')", name="state"),
        sa.CheckConstraint("(finished_at IS NULL) = (state IN ('queued', 'running', 'paused'))", name="finished"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    key: Mapped[str | None]
    group_id: Mapped[int | None] = mapped_column(index=True)
    name: Mapped[str]
    state: Mapped[str] = mapped_column(sa.String(16), default="queued")
    wish: Mapped[str | None] = mapped_column(sa.String(16))
    priority: Mapped[int]
    backend: Mapped[str]
    request: Mapped[SweepRequest]
    foreground: Mapped[bool]
    study: Mapped[str | None]
    found: Mapped[Found | None]
    detail: Mapped[str] = mapped_column(default="")
    attempts: Mapped[int] = mapped_column(default=0)
    spent_s: Mapped[float] = mapped_column(default=0.0)
    submitted_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    not_before: Mapped[datetime | None]


class EventRow(Base):
    """Something that happened, by the database's clock. Rows are added and never changed."""

    __table_args__ = (sa.Index(None, "sweep_id", "id"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    at: Mapped[datetime]
    sweep_id: Mapped[int | None] = mapped_column(sa.ForeignKey("at_sweep.id"))
    device: Mapped[str | None]
    kind: Mapped[str] = mapped_column(sa.String(32))
    text: Mapped[str]
    data: Mapped[Data]


class DeviceRow(Base):
    """A device that a worker serves or has served."""

    name: Mapped[str] = mapped_column(primary_key=True)
    host: Mapped[str]
    backend: Mapped[str]
    model: Mapped[str]
    health: Mapped[str] = mapped_column(sa.String(16))
    reason: Mapped[str]
    remedy: Mapped[str]
    changed_at: Mapped[datetime]
    seen_at: Mapped[datetime]
    words: Mapped[tuple[str, ...]]
