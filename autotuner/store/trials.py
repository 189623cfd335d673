"""Every trial of a study as a list: read from columns, without the documents of the outcomes."""

from __future__ import annotations

from itertools import groupby

from sqlalchemy import select

from autotuner.store import rows
from autotuner.store.records import ListedTrial
from autotuner.store.store import Store, study_id
from autotuner.store.tables import ParameterRow, TrialRow
from autotuner.values.verdict import Verdict

_COLUMNS = (
    TrialRow.id,
    TrialRow.number,
    TrialRow.session_id,
    TrialRow.verdict,
    TrialRow.fault_code,
    TrialRow.fault_case,
    TrialRow.fault_detail,
    TrialRow.original,
    TrialRow.objective,
    TrialRow.log_low,
    TrialRow.log_high,
    TrialRow.median_us,
    TrialRow.baseline_us,
    TrialRow.censored,
    TrialRow.seconds,
    TrialRow.recorded_at,
    TrialRow.revoked_at,
    TrialRow.revoked_reason,
)


def listed(store: Store, study: str) -> tuple[ListedTrial, ...]:
    """Every recorded trial of the study, faults of ours included, by number. Raises StoreError: no such study."""
    with store.database.reading() as session:
        mine = TrialRow.study_id == study_id(session, store, study)
        found = session.execute(select(*_COLUMNS).where(mine).order_by(TrialRow.number)).all()
        query = select(ParameterRow).join(TrialRow, ParameterRow.trial_id == TrialRow.id).where(mine)
        ordered = session.scalars(query.order_by(ParameterRow.trial_id))
        points = {trial: rows.point_of(group) for trial, group in groupby(ordered, lambda row: row.trial_id)}
        return tuple(
            ListedTrial(
                number=row.number,
                session=row.session_id,
                verdict=Verdict(row.verdict),
                fault=row.fault_code,
                case=row.fault_case,
                detail=row.fault_detail,
                original=row.original,
                objective=row.objective,
                low=row.log_low,
                high=row.log_high,
                median_us=row.median_us,
                baseline_us=row.baseline_us,
                censored=row.censored,
                seconds=row.seconds,
                recorded_at=row.recorded_at,
                revoked_at=row.revoked_at,
                revoked_reason=row.revoked_reason,
                parameters=points.get(row.id, {}),
            )
            for row in found
        )
