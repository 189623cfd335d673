"""Finals and validations read back from the tables, as they were recorded."""

from __future__ import annotations

import json
from collections.abc import Iterator

from sqlalchemy import select
from sqlalchemy.orm import Session

from autotuner.store.records import Ending, FinalsRecord, Lineup, Validation, ValidationRecord
from autotuner.store.tables import FinalsRow, HeatRow, TrialRow, ValidationRow
from autotuner.values.outcome import Heat


def every(session: Session, owner: int, study: str) -> Iterator[FinalsRecord]:
    """All finals of the study, the last begun first."""
    query = select(FinalsRow).where(FinalsRow.study_id == owner)
    for row in session.scalars(query.order_by(FinalsRow.id.desc())):
        yield _record(session, row, study)


def last(session: Session, owner: int, study: str) -> FinalsRecord | None:
    """The finals that came to an end last; None when none did."""
    query = select(FinalsRow).where(FinalsRow.study_id == owner, FinalsRow.finished_at.is_not(None))
    row = session.scalars(query.order_by(FinalsRow.finished_at.desc(), FinalsRow.id.desc()).limit(1)).first()
    return None if row is None else _record(session, row, study)


def validations(session: Session, owner: int, study: str) -> Iterator[ValidationRecord]:
    """All validations of the study, the first recorded first."""
    query = select(ValidationRow).where(ValidationRow.study_id == owner)
    for row in session.scalars(query.order_by(ValidationRow.id)):
        yield ValidationRecord(
            **dict(Validation.model_validate_json(row.document)),
            id=row.id,
            study=study,
            recorded_at=row.recorded_at,
            host=row.host,
            environment=json.loads(row.environment),
        )


def _record(session: Session, row: FinalsRow, study: str) -> FinalsRecord:
    lineup = Lineup.model_validate_json(row.document)
    query = select(HeatRow.document).where(HeatRow.finals_id == row.id).order_by(HeatRow.id)
    heats = tuple(Heat.model_validate_json(document) for document in session.scalars(query))
    return FinalsRecord(
        **dict(lineup),
        id=row.id,
        study=study,
        session=row.session_id,
        started_at=row.started_at,
        finished_at=row.finished_at,
        host=row.host,
        environment=json.loads(row.environment),
        heats=heats,
        standing=None if row.standing is None else Ending.model_validate_json(row.standing),
        revoked=_revoked(session, row.study_id, lineup),
    )


def _revoked(session: Session, owner: int, lineup: Lineup) -> tuple[int, ...]:
    numbers = [finalist.number for finalist in lineup.finalists]
    query = select(TrialRow.number).where(
        TrialRow.study_id == owner, TrialRow.number.in_(numbers), TrialRow.revoked_at.is_not(None)
    )
    return tuple(session.scalars(query.order_by(TrialRow.number)))
