"""Every trial of a study as a list: read from columns, without the documents of the outcomes."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection
from typing import Any

from sqlalchemy import ColumnElement, Text, and_, case, cast, false, func, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from autotuner.store.database import reads
from autotuner.store.records import ListedTrial
from autotuner.store.store import Store, study_id
from autotuner.store.tables import BlockRow, ParameterRow, TrialRow
from autotuner.values.variant import Value

_STANDS = and_(TrialRow.revoked_at.is_(None), TrialRow.objective.is_not(None))
_LATENCY = {
    **{name: getattr(TrialRow, name) for name in ("objective", "median_us", "baseline_us")},
    **{"low": TrialRow.log_low, "high": TrialRow.log_high},
}
_COLUMNS: dict[str, ColumnElement[Any] | InstrumentedAttribute[Any]] = {
    **{name: getattr(TrialRow, name) for name in ListedTrial.model_fields if name in TrialRow.__table__.columns},
    "session": TrialRow.session_id,
    "variant": TrialRow.variant_digest,
    "fault": TrialRow.fault_code,
    "case": TrialRow.fault_case,
    "detail": TrialRow.fault_detail,
    **{name: case((_STANDS, column)) for name, column in _LATENCY.items()},
    "censored": case((_STANDS, TrialRow.censored), else_=false()),
}
"""Where each field of a ListedTrial but its parameters is."""


@reads
def listed(store: Store, session: Session, study: str, after: int = 0) -> tuple[ListedTrial, ...]:
    """The recorded trials of the study whose key is above `after`, faults of ours included, in the order in which they
    were recorded. Raises StoreError: no such study."""
    mine = TrialRow.study_id == study_id(session, store, study), TrialRow.id > after
    points = points_of(session, mine)
    query = select(TrialRow.id, *_COLUMNS.values()).where(*mine).order_by(TrialRow.id)
    return tuple(
        ListedTrial(**dict(zip(_COLUMNS, values, strict=True)), parameters=points.get(key, {}))
        for key, *values in session.execute(query)
    )


def points_of(session: Session, mine: Collection[ColumnElement[bool]]) -> dict[int, dict[str, Value]]:
    """The values of each trial's parameters by its key: IMPL first, then by name.

    The database puts them together: of ten thousand trials they are more than a hundred thousand rows.
    """
    name, number, word = ParameterRow.name, ParameterRow.number, ParameterRow.word
    if session.get_bind().dialect.name == "sqlite":
        point = func.json_group_object(name, func.coalesce(word, number))
    else:
        point = func.json_object_agg(name, func.coalesce(func.to_json(word), func.to_json(number)))
    query = select(ParameterRow.trial_id, cast(point, Text)).group_by(ParameterRow.trial_id)
    keys = session.execute(query.where(ParameterRow.trial_id.in_(select(TrialRow.id).where(*mine))))
    found = {key: json.loads(document) for key, document in keys}
    # Ordered here: databases do not agree on the order of texts.
    order = sorted({name for point in found.values() for name in point}, key=lambda name: (name != "IMPL", name))
    return {key: {name: point[name] for name in order if name in point} for key, point in found.items()}


@reads
def blocks(
    store: Store, session: Session, study: str, numbers: Collection[int]
) -> dict[tuple[int, int], list[tuple[float, float]]]:
    """Microseconds of the variant and of the baseline in each block of these trials, by the problem's place among the
    study's and the trial's number. Those without blocks of their own are left out. Raises StoreError."""
    owner = study_id(session, store, study)
    query = (
        select(BlockRow.problem, TrialRow.number, BlockRow.variant_us, BlockRow.baseline_us)
        .join(TrialRow, BlockRow.trial_id == TrialRow.id)
        .where(TrialRow.study_id == owner, TrialRow.number.in_(numbers), TrialRow.objective.is_not(None))
    )
    found: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    for problem, number, variant_us, baseline_us in session.execute(query):
        # SQLite may hold a text where a number belongs, and then this is a damaged record.
        found[problem, number].append((float(variant_us), float(baseline_us)))
    return found
