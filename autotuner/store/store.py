"""The study store: what the driver writes. Every method is one transaction, so a kill at any moment leaves no half."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pydantic import Field, ValidationError
from sqlalchemy import ColumnElement, Connection, and_, bindparam, insert, or_, select, text
from sqlalchemy.orm import Session

from autotuner.store import lease, rows
from autotuner.store.database import Database, connect_args, label_of, parse, reads, writes
from autotuner.store.lease import Lease
from autotuner.store.patience import Patience
from autotuner.store.records import FinalsResult, HeatKind, Lineup, StudyRecord, Validation
from autotuner.store.tables import (
    Base,
    BlockRow,
    FinalsRow,
    HeatRow,
    ParameterRow,
    ProfileRow,
    SessionRow,
    StudyRow,
    TrialRow,
    ValidationRow,
)
from autotuner.values import config
from autotuner.values.errors import DiskFullError, JudgedOtherwiseError, StoreError, first_line
from autotuner.values.files import write_atomically
from autotuner.values.model import Model
from autotuner.values.outcome import Calibration, Heat, Outcome
from autotuner.values.profile import Profile
from autotuner.values.variant import digest_of
from autotuner.values.verdict import Verdict

if TYPE_CHECKING:
    from autotuner.store.optuna_storage import DriverStorage


_ALIKE = select(TrialRow.number, TrialRow.variant_digest).where(
    TrialRow.study_id == bindparam("study"),
    or_(
        TrialRow.number == bindparam("number"),
        # In the words of the index: `TrialRow.judged` would be `judged = 1` in SQLite, which then reads every trial.
        and_(TrialRow.variant_digest == bindparam("digest"), text(f"{TrialRow.__tablename__}.judged")),
    ),
)
"""The trials of a study with a number or, judged, with a variant. Made once: it is asked for every trial."""
_ADD_TRIAL = insert(TrialRow).returning(TrialRow.id)
_ADD_PARAMETERS, _ADD_BLOCKS = insert(ParameterRow), insert(BlockRow)
AT_ONCE = 100
"""Outcomes that are in memory at a time where all of a study are read one by one."""


class Unwritten(Model):
    """An outcome that a store could not take, as it may be locked, full or gone for longer than the process that judged
    lives. It lies in a file of the cache; the next driver of the study on this host records what it finds there."""

    study: str
    session: int
    session_began: datetime | None = Field(
        description="tells it from one with its number in a store that was made anew or restored"
    )
    number: int
    outcome: Outcome

    @staticmethod
    def _folder(store: str, study: str) -> Path:
        return config.cache_dir() / "unwritten" / digest_of([store, study])[:32]

    @classmethod
    def of(cls, store: str, study: str) -> Iterator[Self]:
        """What is kept for a study; what cannot be read is left out."""
        for path in sorted(cls._folder(store, study).glob("*.json")):
            with suppress(OSError, ValidationError):
                yield cls.model_validate_json(path.read_text())

    def keep(self, store: str) -> None:
        """Keeps it. A disk that is full keeps nothing: the trial is judged again then, should this process die."""
        folder = self._folder(store, self.study)
        with suppress(OSError, DiskFullError):
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(folder / f"{self.number}.json", self.model_dump_json())

    def drop(self, store: str) -> None:
        """It is in the store now."""
        with suppress(OSError):
            (self._folder(store, self.study) / f"{self.number}.json").unlink()


class Store:
    """An open study store. Close it, or use it in a `with`.

    Any method raises StoreError where the database cannot be used and DiskFullError where it cannot grow; both say
    in one line what to do.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        database.guard = partial(lease.require, database=database)
        self._optuna: DriverStorage | None = None
        self.study_ids: dict[str, int] = {}
        """The keys of the studies that were asked for."""
        self._sessions_began: dict[int, datetime] = {}
        """Of the sessions that were started here: a store that is locked cannot be asked."""

    @classmethod
    def open(
        cls, url_or_path: str, *, create: bool = True, read_only: bool = False, patience: Patience | None = None
    ) -> Self:
        """Opens the store at the path of a SQLite file or at a SQLAlchemy URL.

        With `create` false a missing file, or one without our tables, is refused instead of made. With `read_only`
        nothing is written to it. `patience`: how long it is waited for,
        now and later; without, the first failure is raised. Raises StoreError.
        """
        url = parse(url_or_path)
        return cls(Database(url, create=create and not read_only, read_only=read_only, patience=patience))

    @staticmethod
    def label_of(url_or_path: str) -> str:
        """The file, or the URL without its password: for people. Raises StoreError for what can be no store."""
        return label_of(parse(url_or_path))

    def close(self) -> None:
        """Closes every connection, Optuna's too."""
        try:
            if self._optuna is not None:
                self._optuna.close()
        finally:
            self._optuna = None
            self.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def label(self) -> str:
        """The file, or the URL without its password: for people."""
        return self.database.label

    def optuna_storage(self) -> DriverStorage:
        """Optuna's storage in the same database, with the same settings; made once and closed with the store.

        What it was told is in the database after `flush`, which `record` begins with.
        """
        if self._optuna is None:
            self._optuna = self.database.attempt(self._build_optuna)
        return self._optuna

    def _build_optuna(self) -> DriverStorage:
        from optuna.storages import RDBStorage

        from autotuner.store.optuna_storage import DriverStorage

        url = self.database.url
        try:
            with self.database.alone():
                plain = RDBStorage(
                    # Optuna fills `{SCHEMA_VERSION}` in it by str.format, so that braces of a path must be doubled.
                    url.render_as_string(hide_password=False).replace("{", "{{").replace("}", "}}"),
                    engine_kwargs={"connect_args": connect_args(url), "pool_pre_ping": not self.database.is_sqlite},
                )
        except RuntimeError as error:
            raise StoreError(f"{self.label}: Optuna cannot use its tables there: {first_line(error)}") from None
        return DriverStorage(self.database, plain)

    def flush(self) -> None:
        """Writes what Optuna was told. A trial is to be whole in its tables before anything is done for it."""
        if self._optuna is not None:
            self._optuna.flush()

    def lease(self, study: str) -> AbstractContextManager[Lease]:
        """Holds the right to drive a study while the block runs; a dead driver's is taken over.

        Raises StoreError naming the process, its host and since when, if a living driver has it.
        """
        return lease.hold(self.database, lease.of("study", study))

    @writes
    def ensure_study(self, session: Session, study: StudyRecord) -> None:
        """Makes the study unless it is there. Raises StoreError when another study has its name.

        The space, the problems, the device's model and the cache policy are a study's identity; sampler and seed may
        differ when it is resumed, and those it was made with stay recorded.
        """
        row = session.scalar(select(StudyRow).where(StudyRow.name == study.name))
        if row is None:
            session.add(rows.study_row(study, datetime.now(UTC)))
        elif _study_identity(rows.study_record(row)) != _study_identity(study):
            raise StoreError(f"{self.label}: another study is named {study.name!r}: rename this one")

    @writes
    def start_session(
        self,
        session: Session,
        study: str,
        calibration: Calibration,
        environment: Mapping[str, str],
        lane: int = 0,
        builders: int = 1,
    ) -> int:
        """Records that this process starts on the study; the session's number. `lane`: which of its devices.
        `builders`: how many variants it builds side by side, for all of them. Raises StoreError: no such study."""
        row = SessionRow(
            study_id=study_id(session, self, study),
            started_at=datetime.now(UTC),
            calibration=calibration,
            environment=dict(environment),
            host=socket.gethostname(),
            pid=os.getpid(),
            lane=lane,
            builders=builders,
        )
        session.add(row)
        session.flush()
        self._sessions_began[row.id] = row.started_at
        return row.id

    @reads
    def died(self, session: Session, study: str) -> bool:
        """Whether the last driver of the study ended without saying so: it was killed."""
        query = select(SessionRow.finished_at).join(StudyRow, SessionRow.study_id == StudyRow.id)
        last = session.execute(query.where(StudyRow.name == study).order_by(SessionRow.id.desc()).limit(1)).first()
        return last is not None and last[0] is None

    @writes
    def finish_session(self, session: Session, session_id: int) -> None:
        """Records that the session ended in good order. Raises StoreError: no such session."""
        session.get_one(SessionRow, session_id).finished_at = datetime.now(UTC)

    @writes
    def record_heat(
        self,
        session: Session,
        study: str,
        kind: HeatKind,
        heat: Heat,
        session_id: int | None = None,
        finals_id: int | None = None,
    ) -> None:
        """Records a heat as soon as it is over, so that a kill loses none that was run; a second time changes nothing.
        Raises StoreError: no such study."""
        assert (kind == "finals") == (finals_id is not None)
        of = {"study_id": study_id(session, self, study), "session_id": session_id, "finals_id": finals_id}
        values = {**of, "kind": kind, "document": heat}
        if session.scalar(select(HeatRow.id).filter_by(**values)) is None:
            session.add(HeatRow(**values, recorded_at=datetime.now(UTC)))

    @writes
    def start_finals(self, session: Session, study: str, lineup: Lineup, environment: Mapping[str, str]) -> int:
        """Records that finals begin on this host; their number. Raises StoreError: no such study."""
        row = FinalsRow(
            study_id=study_id(session, self, study),
            started_at=datetime.now(UTC),
            host=socket.gethostname(),
            environment=dict(environment),
            document=lineup,
        )
        session.add(row)
        session.flush()
        return row.id

    @writes
    def finish_finals(self, session: Session, finals_id: int, standing: FinalsResult) -> None:
        """Records the result of finals whose heats are all recorded. Raises StoreError: no such finals."""
        row = session.get_one(FinalsRow, finals_id)
        row.finished_at, row.standing = datetime.now(UTC), standing

    @writes
    def record_validation(
        self, session: Session, study: str, validation: Validation, environment: Mapping[str, str]
    ) -> None:
        """Records what was found of a variant on problems that were not tuned, on this host. Raises StoreError: no such
        study."""
        row = ValidationRow(
            study_id=study_id(session, self, study),
            recorded_at=datetime.now(UTC),
            host=socket.gethostname(),
            environment=dict(environment),
            document=validation,
        )
        session.add(row)

    def record(self, study: str, session_id: int, number: int, outcome: Outcome) -> None:
        """Records a trial's outcome and its raw blocks; a second time with the same variant changes nothing. What a
        locked or lost store does not take is kept in a file until it does.

        Raises StoreError when the number stands for another variant or the variant was judged under another number
        before, and ValueError when the outcome is not one that the gate allows (a latency without a pass).
        """
        rows.check(outcome)
        self.flush()
        began, kept = self._sessions_began.get(session_id), []
        each = Unwritten(study=study, session=session_id, session_began=began, number=number, outcome=outcome)

        def keep() -> None:
            each.keep(self.label)
            kept.append(number)

        self._record(each, keep)
        if kept:
            each.drop(self.label)

    def record_unwritten(self, study: str) -> int:
        """Records what an earlier driver of the study on this host could not; how many outcomes that were. One whose
        trial was judged anew meanwhile is dropped, and one of a session that this store does not have: another store
        was at its place then."""
        recorded = 0
        for each in Unwritten.of(self.label, study):
            if self._is_of_this_store(each):
                with suppress(JudgedOtherwiseError):  # what the store does not take otherwise stays kept
                    self._record(each)
                    recorded += 1
            each.drop(self.label)
        return recorded

    @reads
    def _is_of_this_store(self, session: Session, each: Unwritten) -> bool:
        mine = SessionRow.id == each.session, SessionRow.study_id == study_id(session, self, each.study)
        began = session.scalar(select(SessionRow.started_at).where(*mine))
        return began is not None and began == each.session_began

    def _record(self, each: Unwritten, failed: Callable[[], None] = lambda: None) -> None:
        outcome = each.outcome

        def add(connection: Connection) -> None:
            owner = study_id(connection, self, each.study)
            if self._is_recorded(connection, owner, each.study, each.number, outcome):
                return
            row = rows.trial_values(owner, each.session, each.number, outcome, datetime.now(UTC))
            row |= _shared_revocation(connection, owner, outcome)
            trial_id = connection.execute(_ADD_TRIAL, row).scalar_one()
            connection.execute(_ADD_PARAMETERS, list(rows.parameters(trial_id, outcome.variant)))
            blocks = list(rows.blocks(trial_id, outcome))
            if blocks:
                connection.execute(_ADD_BLOCKS, blocks)

        self.database.write_plainly(add, failed)

    def _is_recorded(self, connection: Connection, owner: int, study: str, number: int, outcome: Outcome) -> bool:
        digest = outcome.variant.digest
        known = connection.execute(_ALIKE, {"study": owner, "number": number, "digest": digest})
        there: dict[int, str] = {row.number: row.variant_digest for row in known}
        if number in there:
            if there[number] == digest:
                return True
            raise JudgedOtherwiseError(f"{study}: trial {number} is recorded with another variant: ask for a new trial")
        if there and outcome.verdict.judges:
            raise JudgedOtherwiseError(
                f"{study}: the variant of trial {number} was judged as trial {min(there)}: use its outcome"
            )
        return False

    def outcomes(self, study: str) -> Iterator[tuple[int, Outcome]]:
        """The outcomes of all recorded trials, faults of ours included, by number: one by one, as those of many do not
        fit into memory. A revoked one has no latency."""
        after = -1
        while found := self._outcomes_after(study, after):
            yield from found
            after = found[-1][0]

    @reads
    def _outcomes_after(self, session: Session, study: str, after: int) -> list[tuple[int, Outcome]]:
        """Some of them, whose numbers are larger than that."""
        mine = TrialRow.study_id == study_id(session, self, study), TrialRow.number > after
        query = select(TrialRow).where(*mine).order_by(TrialRow.number).limit(AT_ONCE)
        return [(row.number, rows.standing_outcome(row)) for row in session.scalars(query)]

    @reads
    def outcome(self, session: Session, study: str, number: int) -> Outcome:
        """What is recorded of one trial. A revoked one has no latency. Raises StoreError: no such study or trial."""
        return rows.standing_outcome(trial_row(session, self, study, number))

    @writes
    def record_profile(self, session: Session, study: str, number: int, profile: Profile) -> None:
        """Keeps a profile beside its trial. Raises StoreError: no such study or trial."""
        Base.metadata.create_all(session.connection(), [Base.metadata.tables[ProfileRow.__tablename__]])
        session.add(ProfileRow(trial_id=trial_row(session, self, study, number).id, document=profile))

    @writes
    def revoke(self, session: Session, study: str, number: int, reason: str) -> tuple[int, ...]:
        """Takes a trial's latency back, with those of every trial that shares its program; the numbers taken back.

        A trial revoked before keeps its first reason. Raises StoreError: no such study or trial.
        """
        row = trial_row(session, self, study, number)
        query = select(TrialRow).where(_same_program(row), TrialRow.revoked_at.is_(None)).order_by(TrialRow.number)
        standing = session.scalars(query).all()
        for each in standing:
            each.revoked_at = datetime.now(UTC)
            each.revoked_reason = reason if each is row else f"same program as trial {number}: {reason}"
        return tuple(each.number for each in standing)


def _study_identity(study: StudyRecord) -> tuple[object, ...]:
    return (study.space_digest, study.problems, study.device.backend, study.device.name, study.cache)


def study_id(session: Session | Connection, store: Store, name: str) -> int:
    """The study's key. Raises StoreError: no such study."""
    if name not in store.study_ids:
        found = session.scalar(select(StudyRow.id).where(StudyRow.name == name))
        if found is None:
            raise StoreError(f"{store.label} has no study {name!r}: list the studies for their names")
        store.study_ids[name] = found
    return store.study_ids[name]


def trial_row(session: Session, store: Store, study: str, number: int) -> TrialRow:
    """The row of a trial. Raises StoreError: no such study or trial."""
    mine = TrialRow.study_id == study_id(session, store, study), TrialRow.number == number
    row = session.scalar(select(TrialRow).where(*mine))
    if row is None:
        raise StoreError(f"{study} has no recorded trial {number}: `autotuner trials` lists them")
    return row


def _same_program(row: TrialRow) -> ColumnElement[bool]:
    """The trial itself, those with its program, its original, and what was deduplicated from it."""
    same: list[ColumnElement[bool]] = [TrialRow.id == row.id]
    if row.program_hash is not None:
        same.append(TrialRow.program_hash == row.program_hash)
    for digest in {row.artifact_digest, row.original} - {None}:
        same += [TrialRow.original == digest, TrialRow.artifact_digest == digest]
    return and_(TrialRow.study_id == row.study_id, TrialRow.judged, or_(*same))


def _shared_revocation(connection: Connection, study: int, outcome: Outcome) -> dict[str, Any]:
    """An original that was revoked between the look-up and the record takes its duplicate along."""
    if outcome.verdict != Verdict.DEDUPLICATED:
        return {}
    columns = TrialRow.revoked_at, TrialRow.revoked_reason
    mine = TrialRow.study_id == study, TrialRow.artifact_digest == outcome.original
    found = connection.execute(select(*columns).where(*mine, TrialRow.revoked_at.is_not(None)).limit(1)).first()
    return {} if found is None else dict(found._mapping)
