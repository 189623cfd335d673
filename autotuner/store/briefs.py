"""A study's trials in brief: what figures of thousands of trials need, without the reports of the gate.

The document of an outcome has tens of kilobytes. A brief reads its beginning, the variant, and its end, the seconds of
each stage, and takes the rest from columns: of 10,000 trials that is a fifth of a second instead of three.
"""

from __future__ import annotations

import json
import os
import sqlite3
import statistics
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from typing import Any

from pydantic import Field
from sqlalchemy import bindparam, func, select
from sqlalchemy.orm import Session

from autotuner.store.records import SessionRecord
from autotuner.store.rows import missing_op, session_record
from autotuner.store.store import Store, study_id
from autotuner.store.tables import BlockRow, FinalsRow, HeatRow, SessionRow, StudyRow, TrialRow
from autotuner.values.model import Model
from autotuner.values.outcome import Outcome
from autotuner.values.variant import Value
from autotuner.values.verdict import Verdict

_VARIANT, _SECONDS = '{"variant":', '"seconds":'
_HEAD, _TAIL = 2048, 512
"""Bytes of a document that are read at its ends. A variant that is longer, or a long standard error after the seconds,
has its whole document read."""
_WHOLE = select(TrialRow.outcome).where(TrialRow.id == bindparam("key"))


class TrialBrief(Model):
    """A recorded trial, revoked ones included: `revoked` ones have no objective here."""

    number: int = Field(description="Optuna's trial number")
    session: int
    family: str
    point: dict[str, Value] = Field(description="IMPL and the parameters")
    verdict: Verdict
    judged: bool
    fault: str | None = Field(description="code of the fault")
    objective: float | None = Field(description="ln(t_variant / t_baseline); None: it has no latency that stands")
    low: float | None = Field(description="of the objective's interval")
    high: float | None
    median_us: float | None
    baseline_us: float | None
    censored: bool
    revoked: bool
    original: str | None = Field(description="deduplicated: digest of the artifact that was measured")
    seconds: dict[str, float] = Field(description="wall seconds by stage")
    recorded_at: datetime


class Revision(Model):
    """Changes whenever something of a study changes. Two that are equal: nothing has happened between them."""

    last: int = Field(description="key of the trial recorded last; 0: none")
    trials: int
    standing: int = Field(description="trials that have an objective; a doubted one loses it")
    revoked: int
    sessions: int
    finished: int = Field(description="sessions that ended in good order")
    heats: int
    finals: int = Field(description="finals that came to an end")

    @property
    def tag(self) -> str:
        """The revision as a word."""
        return "-".join(format(number, "x") for number in self.model_dump().values())


def names(store: Store) -> tuple[str, ...]:
    """The name of every study whose op is here, the oldest first."""
    with store.database.reading() as session:
        found = session.scalars(select(StudyRow).order_by(StudyRow.id))
        return tuple(row.name for row in found if missing_op(row) is None)


def revision(store: Store, study: str) -> Revision:
    """The revision of a study. Raises StoreError: no such study."""
    with store.database.reading() as session:
        owner = study_id(session, store, study)
        trials = select(func.max(TrialRow.id), func.count(), func.count(TrialRow.objective)).where(
            TrialRow.study_id == owner
        )
        last, count, standing = session.execute(trials).one()
        revoked = select(func.count()).where(TrialRow.study_id == owner, TrialRow.revoked_at.is_not(None))
        sessions = select(func.count(), func.count(SessionRow.finished_at)).where(SessionRow.study_id == owner)
        started, finished = session.execute(sessions).one()
        return Revision(
            last=last or 0,
            trials=count,
            standing=standing,
            revoked=session.scalar(revoked) or 0,
            sessions=started,
            finished=finished,
            heats=session.scalar(select(func.count()).where(HeatRow.study_id == owner)) or 0,
            finals=session.scalar(
                select(func.count()).where(FinalsRow.study_id == owner, FinalsRow.standing.is_not(None))
            )
            or 0,
        )


def briefs(store: Store, study: str, after: int = 0) -> tuple[TrialBrief, ...]:
    """The trials whose key is above `after`, in the order in which they were recorded. Raises StoreError."""
    with store.database.reading() as session:
        owner = study_id(session, store, study)
        query = select(*_COLUMNS).where(TrialRow.study_id == owner, TrialRow.id > after).order_by(TrialRow.id)
        found = session.execute(query).all()
        return tuple(
            _brief(row, *parts) for row, parts in zip(found, _parts(session, [row.id for row in found]), strict=True)
        )


_COLUMNS = (
    TrialRow.id,
    TrialRow.number,
    TrialRow.session_id,
    TrialRow.verdict,
    TrialRow.judged,
    TrialRow.fault_code,
    TrialRow.objective,
    TrialRow.log_low,
    TrialRow.log_high,
    TrialRow.median_us,
    TrialRow.baseline_us,
    TrialRow.censored,
    TrialRow.original,
    TrialRow.recorded_at,
    TrialRow.revoked_at,
)


def _brief(row: Any, variant: dict[str, Any], seconds: dict[str, float]) -> TrialBrief:
    return TrialBrief(
        number=row.number,
        session=row.session_id,
        family=variant["family"],
        point={"IMPL": variant["impl"], **variant["parameters"]},
        verdict=Verdict(row.verdict),
        judged=row.judged,
        fault=row.fault_code,
        objective=row.objective if row.revoked_at is None else None,
        low=row.log_low,
        high=row.log_high,
        median_us=row.median_us,
        baseline_us=row.baseline_us,
        censored=row.censored,
        revoked=row.revoked_at is not None,
        original=row.original,
        seconds=seconds,
        recorded_at=row.recorded_at,
    )


def _parts(session: Session, keys: Sequence[int]) -> Iterator[tuple[dict[str, Any], dict[str, float]]]:
    """The variant and the seconds of each outcome."""
    for key, (head, tail) in zip(keys, _ends(session, keys), strict=True):
        found = _decoded(head, tail)
        if found is None:
            outcome = Outcome.model_validate_json(session.execute(_WHOLE, {"key": key}).scalar_one())
            found = outcome.variant.model_dump(), outcome.seconds
        yield found


def _ends(session: Session, keys: Sequence[int]) -> Iterator[tuple[str, str]]:
    """Beginning and end of each outcome's document, without the middle where the database can do that."""
    if session.get_bind().dialect.name != "sqlite":
        ends = select(func.left(TrialRow.outcome, _HEAD), func.right(TrialRow.outcome, _TAIL))
        for key in keys:
            head, tail = session.execute(ends.where(TrialRow.id == key)).one()
            yield head, tail
        return
    connection = session.connection().connection.driver_connection
    assert isinstance(connection, sqlite3.Connection)
    for key in keys:
        with connection.blobopen(TrialRow.__tablename__, "outcome", key, readonly=True) as document:
            head = document.read(_HEAD)
            document.seek(max(0, len(document) - _TAIL), os.SEEK_SET)
            yield head.decode(errors="replace"), document.read(_TAIL).decode(errors="replace")


def _decoded(head: str, tail: str) -> tuple[dict[str, Any], dict[str, float]] | None:
    """None where the ends do not hold both. Within a string a quote is escaped, so what reads as a key is one."""
    place = tail.rfind(_SECONDS)
    if not head.startswith(_VARIANT) or place < 0:
        return None
    decoder = json.JSONDecoder()
    try:
        variant, _ = decoder.raw_decode(head, len(_VARIANT))
        seconds, _ = decoder.raw_decode(tail, place + len(_SECONDS))
    except ValueError:
        return None
    return (variant, seconds) if isinstance(variant, dict) and isinstance(seconds, dict) else None


def sessions(store: Store, study: str) -> tuple[SessionRecord, ...]:
    """The runs of the driver on the study, the first one first. Raises StoreError."""
    with store.database.reading() as session:
        owner = study_id(session, store, study)
        found = session.scalars(select(SessionRow).where(SessionRow.study_id == owner).order_by(SessionRow.id))
        return tuple(session_record(row, study) for row in found)


class ProblemTimes(Model):
    """One trial on one problem: medians over its blocks, microseconds of one forward."""

    number: int
    problem: int = Field(description="place among the study's problems")
    variant_us: float
    baseline_us: float


def problem_times(store: Store, study: str, numbers: Collection[int]) -> tuple[ProblemTimes, ...]:
    """What these trials took on each problem; those without blocks of their own are left out. Raises StoreError."""
    with store.database.reading() as session:
        owner = study_id(session, store, study)
        query = (
            select(TrialRow.number, BlockRow.problem, BlockRow.variant_us, BlockRow.baseline_us)
            .join(BlockRow, BlockRow.trial_id == TrialRow.id)
            .where(TrialRow.study_id == owner, TrialRow.number.in_(numbers), TrialRow.objective.is_not(None))
        )
        blocks: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
        for number, problem, variant_us, baseline_us in session.execute(query):
            blocks[number, problem].append((variant_us, baseline_us))
    return tuple(
        ProblemTimes(
            number=number,
            problem=problem,
            variant_us=statistics.median(us for us, _ in pairs),
            baseline_us=statistics.median(us for _, us in pairs),
        )
        for (number, problem), pairs in sorted(blocks.items())
    )
