"""Finals read back from the tables: their standing as it is now, and which trial of a tie to use."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from autotuner.measure.confirm import Confirmed, Standing, confirm
from autotuner.store.records import FinalsRecord, FinalsSummary, Lineup
from autotuner.store.tables import FinalsRow, HeatRow, TrialRow
from autotuner.values.outcome import Heat, MeanInterval, Outcome


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


def _record(session: Session, row: FinalsRow, study: str) -> FinalsRecord:
    lineup = Lineup.model_validate_json(row.document)
    query = select(HeatRow.document).where(HeatRow.finals_id == row.id).order_by(HeatRow.id)
    heats = tuple(Heat.model_validate_json(document) for document in session.scalars(query))
    revoked = _revoked(session, row.study_id, lineup)
    standing = None if row.standing is None else Standing.model_validate_json(row.standing)
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
        standing=standing and _without(standing, heats, lineup, revoked),
        revoked=revoked,
    )


def _revoked(session: Session, owner: int, lineup: Lineup) -> tuple[int, ...]:
    numbers = [finalist.number for finalist in lineup.finalists]
    query = select(TrialRow.number).where(
        TrialRow.study_id == owner, TrialRow.number.in_(numbers), TrialRow.revoked_at.is_not(None)
    )
    return tuple(session.scalars(query.order_by(TrialRow.number)))


def _without(standing: Standing, heats: tuple[Heat, ...], lineup: Lineup, revoked: tuple[int, ...]) -> Standing:
    """The standing, drawn anew from the heats of those that are left: who ties with whom depends on all of them."""
    if not revoked:
        return standing
    gone = {finalist.digest for finalist in lineup.finalists if finalist.number in revoked}
    return confirm([_heat_without(heat, gone) for heat in heats], lineup.tie, lineup.objective)


def _heat_without(heat: Heat, gone: set[str]) -> Heat:
    kept = [place for place, digest in enumerate(heat.entrants) if digest not in gone]
    return heat.model_copy(
        update={
            "entrants": tuple(heat.entrants[place] for place in kept),
            "us": tuple(heat.us[place] for place in kept),
            "faults": {new: heat.faults[old] for new, old in enumerate(kept) if old in heat.faults},
        }
    )


class Result:
    """What finals that came to an end say of the study's trials."""

    def __init__(self, record: FinalsRecord, standing: Standing) -> None:
        self.record, self.standing = record, standing
        finalists = record.by_digest
        self._by_searched = {finalists[each.digest].searched: each for each in standing.finalists}
        self.leader = None if standing.leader is None else finalists[standing.leader].number
        tied = [finalists[each.digest].number for each in standing.finalists if each.tied]
        self.tied = tuple(sorted(tied))
        """Numbers of the finalists that tie for the lead, the leader among them."""

    @property
    def searched(self) -> tuple[str, ...]:
        """Digests, as the search had them, of the artifacts that were confirmed."""
        return tuple(self._by_searched)

    def of(self, row: TrialRow) -> Confirmed | None:
        """What was confirmed of the trial; a duplicate shares its original's."""
        key = row.original or row.artifact_digest
        return None if key is None else self._by_searched.get(key)

    def summary(self, session: Session, owner: int) -> FinalsSummary:
        """All of it in short."""
        record, standing = self.record, self.standing
        assert record.finished_at is not None
        since = select(func.count()).where(
            TrialRow.study_id == owner, TrialRow.judged, TrialRow.recorded_at > record.started_at
        )
        speedups = [speedup_of(each.log_ratio) for each in standing.finalists if each.digest == standing.leader]
        return FinalsSummary(
            id=record.id,
            finished_at=record.finished_at,
            host=record.host,
            processes=standing.processes,
            blocks=record.blocks,
            tie=standing.tie,
            leader=self.leader,
            speedup=speedups[0] if speedups else None,
            tied=self.tied,
            crowned=standing.crowned,
            judged_since=session.scalar(since) or 0,
        )


def result(session: Session, owner: int, study: str) -> Result | None:
    """Of the finals that came to an end last; None when none did."""
    record = last(session, owner, study)
    return None if record is None or record.standing is None else Result(record, record.standing)


def speedup_of(log: MeanInterval) -> MeanInterval:
    """t_baseline / t_variant from ln(t_variant / t_baseline): the ends change places."""
    return MeanInterval(low=math.exp(-log.high), mean=math.exp(-log.mean), high=math.exp(-log.low), level=log.level)


def preference(number: int, outcome: Outcome) -> tuple[float, int, int, int]:
    """Sorts trials that tie: the smallest is preferred.

    Accuracy first, as the largest error in tolerances over all cases of the gate, in tenths; then registers and shared
    memory, of which a small need leaves room for other work beside it, or on the CPU the stack; then the number.
    """
    cases = [case for check in (outcome.gate.checks if outcome.gate else ()) for case in check.cases]
    worst = max((case.errors.worst_ratio for case in cases), default=math.inf)
    resources = outcome.artifact.resources if outcome.artifact else {}
    memory = resources.get("shared_bytes", resources.get("stack_bytes", 0))
    return round(worst, 1), resources.get("registers", 0), memory, number
