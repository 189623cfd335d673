"""What can be asked of a store. Every query reads our tables, never Optuna's: a revoked trial is no one's best."""

from __future__ import annotations

import difflib
import math
import statistics
from collections.abc import Sequence
from datetime import UTC, datetime

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session

from autotuner.errors import StoreError
from autotuner.outcome import Interval, Outcome
from autotuner.store import lease, rows
from autotuner.store.records import Best, Entry, Spread, StudyRecord, StudySummary, TrialRecord
from autotuner.store.store import Store, study_id
from autotuner.store.tables import LeaseRow, SessionRow, StudyRow, TrialRow
from autotuner.variant import Variant
from autotuner.verdict import Verdict


def studies(store: Store) -> tuple[StudySummary, ...]:
    """Every study of the store, the most recently active first."""
    with store.database.reading() as session:
        found = [_summary(session, row) for row in session.scalars(select(StudyRow))]
    return tuple(sorted(found, key=lambda each: each.last_activity, reverse=True))


def summary(store: Store, study: str) -> StudySummary:
    """One study at a glance. Raises StoreError: no such study."""
    with store.database.reading() as session:
        return _summary(session, _study_row(session, store, study))


def study(store: Store, name: str) -> StudyRecord:
    """A study as it was made. Raises StoreError: no such study."""
    with store.database.reading() as session:
        return rows.study_record(_study_row(session, store, name))


def leaderboard(store: Store, study: str, limit: int = 10) -> tuple[Entry, ...]:
    """The `limit` fastest trials that passed the gate and stand, by objective and then number. Raises StoreError.

    Trials that were raced out are in it, marked censored: theirs is an estimate. Duplicates share their original's.
    """
    with store.database.reading() as session:
        query = _standing(study_id(session, store, study)).limit(limit)
        return tuple(_entry(rank, row) for rank, row in enumerate(session.scalars(query), start=1))


def best(store: Store, study: str) -> Best | None:
    """The fastest trial that was measured to the end and stands, None when there is none. Raises StoreError."""
    with store.database.reading() as session:
        study_row = _study_row(session, store, study)
        row = _best_row(session, study_row.id)
        return None if row is None else Best(entry=_entry(1, row), record=_record(session, study_row, row))


def trial(store: Store, study: str, number: int) -> TrialRecord:
    """One trial with its whole outcome, a revoked one with the reason. Raises StoreError: no such study or trial."""
    with store.database.reading() as session:
        study_row = _study_row(session, store, study)
        query = select(TrialRow).where(TrialRow.study_id == study_row.id, TrialRow.number == number)
        row = session.scalar(query)
        if row is None:
            count = session.scalar(select(func.count()).where(TrialRow.study_id == study_row.id))
            raise StoreError(f"{study} has no recorded trial {number}: give the number of one of its {count}")
        return _record(session, study_row, row)


def resolve_study(store: Store, wanted: str | None = None) -> str:
    """The full name of the study meant: by its name, by a prefix that only it has, or the last active one for None.

    Raises StoreError, listing the near names, when none or several are meant.
    """
    with store.database.reading() as session:
        names = _names_by_activity(session)
    if not names:
        raise StoreError(f"{store.label} has no studies yet: start a search first")
    if wanted is None:
        return names[0]
    if wanted in names:
        return wanted
    matching = [name for name in names if name.startswith(wanted)]
    if len(matching) == 1:
        return matching[0]
    if matching:
        raise StoreError(f"{wanted!r} could be any of {', '.join(matching[:8])}: write more of the name")
    near = difflib.get_close_matches(wanted, names, n=5, cutoff=0.4) or names[:5]
    raise StoreError(f"no study is named {wanted!r}; near it: {', '.join(near)}")


def _study_row(session: Session, store: Store, name: str) -> StudyRow:
    return session.get_one(StudyRow, study_id(session, store, name))


def _standing(owner: int) -> Select[TrialRow]:
    """Trials with a latency that stands, best first; no other verdict has an objective (a rule of the table)."""
    query = select(TrialRow).where(
        TrialRow.study_id == owner, TrialRow.objective.is_not(None), TrialRow.revoked_at.is_(None)
    )
    return query.order_by(TrialRow.objective, TrialRow.number)


def _best_row(session: Session, owner: int) -> TrialRow | None:
    # Duplicates share their original's figures; the original has the proof, so it is the one.
    fully = (TrialRow.verdict == Verdict.MEASURED.value, TrialRow.censored.is_(False))
    return session.scalars(_standing(owner).where(*fully).limit(1)).first()


def _number(value: float | None) -> float:
    """A column that every row with an objective has filled."""
    return math.nan if value is None else value


def _entry(rank: int, row: TrialRow) -> Entry:
    interval = Interval(
        low=math.exp(-_number(row.log_high)),
        median=math.exp(-_number(row.objective)),
        high=math.exp(-_number(row.log_low)),
    )
    return Entry(
        rank=rank,
        number=row.number,
        variant=_variant(row),
        verdict=Verdict(row.verdict),
        median_us=_number(row.median_us),
        baseline_us=_number(row.baseline_us),
        speedup=interval,
        censored=row.censored,
    )


def _variant(row: TrialRow) -> Variant:
    return rows.outcome_of(row).variant


def _record(session: Session, study_row: StudyRow, row: TrialRow) -> TrialRecord:
    outcome: Outcome = rows.outcome_of(row)
    return TrialRecord(
        study=study_row.name,
        number=row.number,
        outcome=outcome,
        session=rows.session_record(session.get_one(SessionRow, row.session_id), study_row.name),
        recorded_at=row.recorded_at,
        revoked_at=row.revoked_at,
        revoked_reason=row.revoked_reason,
    )


def _summary(session: Session, row: StudyRow) -> StudySummary:
    record = rows.study_record(row)
    top = _best_row(session, row.id)
    revoked = select(func.count()).where(TrialRow.study_id == row.id, TrialRow.revoked_at.is_not(None))
    judged = select(func.count()).where(TrialRow.study_id == row.id, TrialRow.judged)
    return StudySummary(
        name=row.name,
        space=row.space_name,
        device=record.device.name,
        problems=record.problems,
        cache=record.cache,
        sampler=row.sampler,
        started_at=row.created_at,
        last_activity=_last_activity(session, row),
        running=_running(session, row.id),
        judged=session.scalar(judged) or 0,
        by_verdict=_by_verdict(session, row.id),
        by_fault=_by_fault(session, row.id),
        revoked=session.scalar(revoked) or 0,
        best_number=None if top is None else top.number,
        best_speedup=None if top is None else math.exp(-_number(top.objective)),
        best_us=None if top is None else top.median_us,
        spread=_spread(session, row.id),
    )


def _by_verdict(session: Session, owner: int) -> dict[Verdict, int]:
    query = select(TrialRow.verdict, func.count()).where(TrialRow.study_id == owner, TrialRow.revoked_at.is_(None))
    counts = {Verdict(verdict): count for verdict, count in session.execute(query.group_by(TrialRow.verdict))}
    return {verdict: counts[verdict] for verdict in Verdict if verdict in counts}


def _by_fault(session: Session, owner: int) -> dict[str, int]:
    """The most frequent first."""
    query = select(TrialRow.fault_code, func.count()).where(
        TrialRow.study_id == owner, TrialRow.judged, TrialRow.revoked_at.is_(None), TrialRow.fault_code.is_not(None)
    )
    counts = [(code or "", count) for code, count in session.execute(query.group_by(TrialRow.fault_code))]
    return dict(sorted(counts, key=lambda each: (-each[1], each[0])))


def _spread(session: Session, owner: int) -> Spread | None:
    query = _standing(owner).where(TrialRow.verdict != Verdict.DEDUPLICATED.value)
    found = session.execute(query.with_only_columns(TrialRow.objective, TrialRow.median_us)).all()
    if not found:
        return None
    return Spread(
        measured=len(found),
        best_us=_number(found[0][1]),
        median_us=statistics.median(_number(median_us) for _, median_us in found),
        worst_us=_number(found[-1][1]),
        worst_to_best=math.exp(_number(found[-1][0]) - _number(found[0][0])),
    )


def _last_activity(session: Session, row: StudyRow) -> datetime:
    times: Sequence[datetime | None] = (
        row.created_at,
        session.scalar(select(func.max(SessionRow.started_at)).where(SessionRow.study_id == row.id)),
        session.scalar(select(func.max(SessionRow.finished_at)).where(SessionRow.study_id == row.id)),
        session.scalar(select(func.max(TrialRow.recorded_at)).where(TrialRow.study_id == row.id)),
    )
    return max(time for time in times if time is not None)


def _names_by_activity(session: Session) -> list[str]:
    found = session.scalars(select(StudyRow)).all()
    ordered = sorted(found, key=lambda row: (_last_activity(session, row), row.id), reverse=True)
    return [row.name for row in ordered]


def _running(session: Session, owner: int) -> bool:
    """Whether a driver that lives has an unfinished session on the study."""
    now = datetime.now(UTC)
    holders = [row for row in session.scalars(select(LeaseRow)) if lease.is_alive(row, now)]
    query = select(SessionRow).where(SessionRow.study_id == owner, SessionRow.finished_at.is_(None))
    return any(
        (one.host, one.pid) == (holder.host, holder.pid) and one.started_at >= holder.started_at
        for one in session.scalars(query)
        for holder in holders
    )
