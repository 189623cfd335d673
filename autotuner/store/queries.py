"""What can be asked of a store. Every query reads our tables, never Optuna's, and decides nothing: which trial is the
best is for the rooms above to say."""

import difflib
import json
import math
import zlib
from collections import Counter, defaultdict
from collections.abc import Collection
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, Text, and_, case, cast, column, false, func, inspect, or_, select, table
from sqlalchemy.orm import InstrumentedAttribute, Session

from autotuner.store import lease, rows
from autotuner.store.database import reads
from autotuner.store.records import (
    FinalsRecord,
    JudgedTrial,
    ListedTrial,
    MeasuredTrial,
    Revision,
    SessionRecord,
    StudyProgress,
    StudyRecord,
    TrialRecord,
    ValidationRecord,
)
from autotuner.store.store import Store, study_id, trial_row
from autotuner.store.tables import (
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
from autotuner.values.errors import StoreError
from autotuner.values.outcome import Heat, Measurement
from autotuner.values.profile import Profile
from autotuner.values.ratio import LogRatio
from autotuner.values.variant import Value
from autotuner.values.verdict import Verdict


@reads
def progress(store: Store, session: Session, study: str) -> StudyProgress:
    """How far a study is. Raises StoreError: no such study."""
    row = _study_row(session, store, study)
    of, by_verdict, by_fault = rows.study_record(row), Counter[str](), Counter[str]()
    judged = revoked = 0
    kinds = TrialRow.verdict, TrialRow.fault_code, TrialRow.judged, TrialRow.revoked_at.is_not(None)
    query = select(*kinds, func.count()).where(TrialRow.study_id == row.id).group_by(*kinds)
    for verdict, fault, judges, is_revoked, count in session.execute(query):
        judged += count if judges else 0
        revoked += count if is_revoked else 0
        by_verdict[verdict] += 0 if is_revoked else count
        if judges and fault is not None and not is_revoked:
            by_fault[fault] += count
    return StudyProgress.taken_from(
        row,
        space=row.space_name,
        device=of.device.name,
        problems=of.problems,
        started_at=row.created_at,
        last_activity=_last_activity(session, row),
        running=_running(session, study),
        judged=judged,
        by_verdict={verdict: by_verdict[verdict] for verdict in Verdict if by_verdict[verdict]},
        by_fault=dict(sorted(by_fault.items(), key=lambda each: (-each[1], each[0]))),
        revoked=revoked,
        note=_note(session, study),
        disturbed=_disturbed(session, row.id),
    )


@reads
def records(store: Store, session: Session) -> tuple[StudyRecord, ...]:
    """Every study of the store whose op is here, as it was made, the oldest first."""
    return tuple(map(rows.study_record, _of_ops_here(session)))


@reads
def names(store: Store, session: Session) -> tuple[str, ...]:
    """The name of every study whose op is here, the oldest first."""
    return tuple(row.name for row in _of_ops_here(session))


@reads
def sessions(store: Store, session: Session, study: str) -> tuple[SessionRecord, ...]:
    """The runs of the driver on the study, the first one first. Raises StoreError."""
    owner = study_id(session, store, study)
    found = session.scalars(select(SessionRow).where(SessionRow.study_id == owner).order_by(SessionRow.id))
    return tuple(SessionRecord.taken_from(row, study=study) for row in found)


@reads
def revision(store: Store, session: Session, study: str) -> Revision:
    """The revision of a study. Raises StoreError: no such study."""
    owner = study_id(session, store, study)
    counts = func.max(TrialRow.id), func.count(), func.count(TrialRow.objective), func.count(TrialRow.revoked_at)
    last, trials, standing, revoked = session.execute(select(*counts).where(TrialRow.study_id == owner)).one()
    columns = (SessionRow.id, SessionRow.finished_at, HeatRow.id, FinalsRow.finished_at)
    counted = (select(func.count(each)).where(each.class_.study_id == owner) for each in columns)
    profiles = _last_profile(session, TrialRow.study_id == owner, ProfileRow.id) or 0
    others = *(session.scalar(each) or 0 for each in counted), profiles, zlib.crc32(_note(session, study).encode())
    return Revision(last=last or 0, trials=trials, standing=standing, revoked=revoked, others=others)


@reads
def now(store: Store, session: Session) -> datetime:
    """The database's time."""
    return store.database.now(session)


@reads
def judged_count(store: Store, session: Session, study: str, since: datetime | None = None) -> int:
    """How many variants a study has judged, or has since a moment. Raises StoreError."""
    query = select(func.count()).where(TrialRow.study_id == study_id(session, store, study), TrialRow.judged)
    return session.scalar(query if since is None else query.where(TrialRow.recorded_at > since)) or 0


@reads
def study(store: Store, session: Session, name: str) -> StudyRecord:
    """A study as it was made. Raises StoreError: no such study."""
    return rows.study_record(_study_row(session, store, name))


@reads
def measured(
    store: Store,
    session: Session,
    study: str,
    limit: int | None = None,
    *,
    artifacts: Collection[str] | None = None,
    without: Collection[str] = (),
    fully: bool = False,
) -> tuple[MeasuredTrial, ...]:
    """The trials that passed the gate and stand, by the search's objective and then number. Raises StoreError.

    `artifacts`: only trials that were measured as one of these digests; `without`: none of those. `fully`: only those
    measured to the end under their own number, neither raced out nor duplicates.
    """
    query = _standing(study_id(session, store, study))
    key = func.coalesce(TrialRow.original, TrialRow.artifact_digest)
    if artifacts is not None:
        query = query.where(key.in_(artifacts))
    if without:
        query = query.where(or_(key.is_(None), key.not_in(without)))
    if fully:
        query = query.where(TrialRow.verdict == Verdict.MEASURED.value, TrialRow.censored.is_(False))
    return tuple(
        MeasuredTrial.taken_from(
            row,
            variant=row.outcome.variant,
            artifact=row.original or row.artifact_digest,
            log_ratio=LogRatio(low=_number(row.log_low), mid=_number(row.objective), high=_number(row.log_high)),
            median_us=_number(row.median_us),
            baseline_us=_number(row.baseline_us),
        )
        for row in session.scalars(query.limit(limit))
    )


@reads
def races(store: Store, session: Session, study: str, among: int) -> tuple[Measurement, ...]:
    """The measurements against an incumbent, of the last `among` trials that stand. Raises StoreError."""
    query = select(TrialRow.outcome).where(
        TrialRow.study_id == study_id(session, store, study),
        TrialRow.objective.is_not(None),
        TrialRow.revoked_at.is_(None),
        TrialRow.verdict != Verdict.DEDUPLICATED.value,
    )
    raced = (each.measurement for each in session.scalars(query.order_by(TrialRow.number.desc()).limit(among)))
    return tuple(each for each in raced if each is not None and each.incumbent is not None)


@reads
def latencies(store: Store, session: Session, study: str) -> list[tuple[float, float]]:
    """ln(t_variant / t_baseline) and microseconds of what was raced and stands, best first; of duplicates the original
    alone. Raises StoreError."""
    query = _standing(study_id(session, store, study)).where(TrialRow.verdict != Verdict.DEDUPLICATED.value)
    found = session.execute(query.with_only_columns(TrialRow.objective, TrialRow.median_us))
    return [(float(_number(log)), float(_number(us))) for log, us in found]


@reads
def running(store: Store, session: Session, study: str) -> bool:
    """Whether a living driver is working on the study now. Raises StoreError."""
    study_id(session, store, study)
    return _running(session, study)


@reads
def disturbed(store: Store, session: Session, study: str) -> tuple[int, ...]:
    """Of the variants that were measured on a disturbed machine alone, the last trial of each. Raises StoreError."""
    return _disturbed(session, study_id(session, store, study))


@reads
def finals(store: Store, session: Session, study: str) -> FinalsRecord | None:
    """The finals that came to an end last, with the raw times; None when none did. Raises StoreError."""
    mine = FinalsRow.study_id == study_id(session, store, study), FinalsRow.finished_at.is_not(None)
    last = select(FinalsRow).where(*mine).order_by(FinalsRow.finished_at.desc(), FinalsRow.id.desc()).limit(1)
    row = session.scalar(last)
    return None if row is None else _finals(session, row, study)


@reads
def validations(store: Store, session: Session, study: str) -> tuple[ValidationRecord, ...]:
    """What was found of variants on problems that were not tuned, the first recorded first. Raises StoreError."""
    mine = ValidationRow.study_id == study_id(session, store, study)
    found = session.scalars(select(ValidationRow).where(mine).order_by(ValidationRow.id))
    return tuple(ValidationRecord.taken_from(row, **dict(row.document), study=study) for row in found)


@reads
def aa_heats(store: Store, session: Session, study: str) -> tuple[Heat, ...]:
    """The A/A races of the study, oldest first. Raises StoreError."""
    query = select(HeatRow.document).where(HeatRow.study_id == study_id(session, store, study), HeatRow.kind == "aa")
    return tuple(session.scalars(query.order_by(HeatRow.id)))


@reads
def trial(store: Store, session: Session, study: str, number: int) -> TrialRecord:
    """One trial with its whole outcome, a revoked one with the reason. Raises StoreError: no such study or trial."""
    row = trial_row(session, store, study, number)
    judged_in = SessionRecord.taken_from(session.get_one(SessionRow, row.session_id), study=study)
    return TrialRecord.taken_from(row, study=study, session=judged_in)


@reads
def profile(store: Store, session: Session, study: str, number: int) -> Profile | None:
    """What hardware counters said of a trial the last time; None: it was not profiled. Raises StoreError."""
    mine = and_(TrialRow.study_id == study_id(session, store, study), TrialRow.number == number)
    found: Profile | None = _last_profile(session, mine, ProfileRow.document)
    return found


def _last_profile(session: Session, mine: ColumnElement[bool], wanted: Any) -> Any:
    if not inspect(session.connection()).has_table(ProfileRow.__tablename__):
        return None
    query = select(wanted).join(TrialRow, ProfileRow.trial_id == TrialRow.id).where(mine)
    return session.scalar(query.order_by(ProfileRow.id.desc()).limit(1))


@reads
def revoked(store: Store, session: Session, study: str) -> tuple[int, ...]:
    """Numbers of the trials that were revoked. Raises StoreError."""
    query = select(TrialRow.number).where(
        TrialRow.study_id == study_id(session, store, study), TrialRow.revoked_at.is_not(None)
    )
    return tuple(session.scalars(query.order_by(TrialRow.number)))


_STANDS = and_(TrialRow.revoked_at.is_(None), TrialRow.objective.is_not(None))
_LATENCY = ("objective", "log_low", "log_high", "median_us", "baseline_us")
_COLUMNS: dict[str, ColumnElement[Any] | InstrumentedAttribute[Any]] = {
    **{name: getattr(TrialRow, name) for name in ListedTrial.model_fields if name != "parameters"},
    **{name: case((_STANDS, getattr(TrialRow, name))) for name in _LATENCY},
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


def judged(store: Store, study: str) -> tuple[JudgedTrial, ...]:
    """Every trial whose outcome says something of its variant, in the order of their ends. Raises StoreError."""
    found = sorted((each for each in listed(store, study) if each.judged), key=lambda e: (e.recorded_at, e.number))
    return tuple(
        JudgedTrial(
            number=each.number,
            point=each.parameters,
            objective=math.inf if each.objective is None else each.objective,
            code=each.cause,
        )
        for each in found
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


@reads
def resolve_study(store: Store, session: Session, wanted: str | None = None) -> str:
    """The full name of the study meant: by its name, by a prefix that only it has, or the last active one for None.

    Raises StoreError, listing the near names, when none or several are meant.
    """
    found = sorted(session.scalars(select(StudyRow)), key=lambda row: (_last_activity(session, row), row.id))
    names = [row.name for row in reversed(found)]
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


NOTE = "note"
"""What people note of a study: an attribute of Optuna's study of this name, where its own tools show it, too."""
_STUDIES = table("studies", column("study_id"), column("study_name"))
_NOTES = table("study_user_attributes", column("study_id"), column("key"), column("value_json"))


def _note(session: Session, study: str) -> str:
    """The note of a study; "" for none."""
    if not inspect(session.connection()).has_table(_STUDIES.name):  # no driver has made Optuna's tables yet
        return ""
    mine = select(_NOTES.c.value_json).join(_STUDIES, _STUDIES.c.study_id == _NOTES.c.study_id)
    found = session.scalar(mine.where(_STUDIES.c.study_name == study, _NOTES.c.key == NOTE))
    return "" if found is None else str(json.loads(found))


def _of_ops_here(session: Session) -> list[StudyRow]:
    found = session.scalars(select(StudyRow).order_by(StudyRow.id))
    return [row for row in found if rows.missing_op(row) is None]


def _study_row(session: Session, store: Store, name: str) -> StudyRow:
    return session.get_one(StudyRow, study_id(session, store, name))


def _standing(owner: int) -> Select[TrialRow]:
    """Trials with a latency that stands, best first; no other verdict has an objective (a rule of the table)."""
    query = select(TrialRow).where(
        TrialRow.study_id == owner, TrialRow.objective.is_not(None), TrialRow.revoked_at.is_(None)
    )
    return query.order_by(TrialRow.objective, TrialRow.number)


def _number(value: float | None) -> float:
    """A column that every row with an objective has filled."""
    return math.nan if value is None else value


def _finals(session: Session, row: FinalsRow, study: str) -> FinalsRecord:
    numbers = [finalist.number for finalist in row.document.finalists]
    mine = TrialRow.study_id == row.study_id, TrialRow.number.in_(numbers), TrialRow.revoked_at.is_not(None)
    return FinalsRecord.taken_from(
        row,
        **dict(row.document),
        study=study,
        heats=tuple(session.scalars(select(HeatRow.document).where(HeatRow.finals_id == row.id).order_by(HeatRow.id))),
        revoked=tuple(session.scalars(select(TrialRow.number).where(*mine).order_by(TrialRow.number))),
    )


def _disturbed(session: Session, owner: int) -> tuple[int, ...]:
    judged = select(TrialRow.variant_digest).where(TrialRow.study_id == owner, TrialRow.judged)
    query = select(func.max(TrialRow.number)).where(
        TrialRow.study_id == owner, TrialRow.verdict == Verdict.DISTURBED.value, TrialRow.variant_digest.not_in(judged)
    )
    return tuple(sorted(session.scalars(query.group_by(TrialRow.variant_digest))))


def _last_activity(session: Session, row: StudyRow) -> datetime:
    moments = (
        SessionRow.started_at,
        SessionRow.finished_at,
        TrialRow.recorded_at,
        HeatRow.recorded_at,
        FinalsRow.started_at,
        FinalsRow.finished_at,
    )
    times = (session.scalar(select(func.max(each)).where(each.class_.study_id == row.id)) for each in moments)
    return max(filter(None, (row.created_at, *times)))


def _running(session: Session, study: str) -> bool:
    return bool(lease.holders(session, [lease.of("study", study)]))
