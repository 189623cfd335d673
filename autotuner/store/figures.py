"""Figures of studies, made by the database from columns: what a study found when, what it cost, how two compare.

None reads an outcome, so that each takes milliseconds on a study of ten thousand trials
(benchmarks/throughput/figures.py).
"""

import math
from collections.abc import Sequence
from datetime import datetime

from pydantic import Field
from sqlalchemy import and_, case, func, select
from sqlalchemy.orm import Session, aliased

from autotuner.store.database import reads
from autotuner.store.store import Store, study_id
from autotuner.store.tables import SessionRow, TrialRow
from autotuner.values.model import Model
from autotuner.values.ratio import speedup_of

Latency = tuple[float, float] | None
"""ln(t_variant / t_baseline), and the variant's microseconds; None where it has no latency that stands."""


class Improvement(Model):
    """A trial that was better than all before it, by a race that it did not lose."""

    number: int
    at: datetime = Field(description="when it was recorded")
    judged: int = Field(description="variants judged until then, this one included")
    seconds: float = Field(description="that all trials until then took on devices and builders")
    speedup: float = Field(description="t_baseline / t_variant, of the search")


class Cost(Model):
    """What trials of one verdict cost."""

    verdict: str
    trials: int
    seconds: float
    build_s: float
    check_s: float
    measure_s: float


class Pace(Model):
    """How fast a study is judged."""

    trials: int
    active_s: float = Field(description="that its runs lasted; an unfinished one until its last trial")
    trials_an_hour: float = Field(description="while a driver was at it")
    last_trials_an_hour: float = Field(description="of the last 50 trials, from the first of them to the last")
    busy_share: float = Field(description="seconds of trials over seconds of runs; more than 1 on several devices")


class StudyCosts(Model):
    """What a study has cost."""

    by_verdict: tuple[Cost, ...] = Field(description="the dearest first")
    pace: Pace | None = Field(description="null before two trials were judged")


@reads
def history(store: Store, session: Session, study: str) -> tuple[Improvement, ...]:
    """Each trial that was the best until then, in the order of the ends. Raises StoreError.

    What was raced out is none of them: its latency is an estimate from a few blocks, and the race has refuted it.
    """
    objective = case((TrialRow.censored.is_(False), TrialRow.objective))
    mine = TrialRow.study_id == study_id(session, store, study), TrialRow.revoked_at.is_(None)
    query = select(TrialRow.number, TrialRow.recorded_at, TrialRow.judged, TrialRow.seconds, objective).where(*mine)
    found, best, judged, seconds = list[Improvement](), math.inf, 0, 0.0
    for number, at, judges, took_s, log in session.execute(query.order_by(TrialRow.recorded_at, TrialRow.number)):
        judged, seconds = judged + judges, seconds + took_s
        if log is not None and log < best:
            best, speedup = log, speedup_of(log)
            found.append(Improvement(number=number, at=at, judged=judged, seconds=seconds, speedup=speedup))
    return tuple(found)


@reads
def costs(store: Store, session: Session, study: str) -> StudyCosts:
    """What the trials of a study have cost, by verdict and stage, and how fast it is judged. Raises StoreError."""
    owner = study_id(session, store, study)
    stages = (TrialRow.seconds, TrialRow.build_s, TrialRow.check_s, TrialRow.measure_s)
    sums = (func.sum(each).label(each.key) for each in stages)
    query = select(TrialRow.verdict, func.count().label("trials"), *sums).where(TrialRow.study_id == owner)
    split = [Cost.taken_from(row) for row in session.execute(query.group_by(TrialRow.verdict))]
    last = select(TrialRow.recorded_at).where(TrialRow.study_id == owner).order_by(TrialRow.recorded_at.desc())
    times = session.scalars(last.limit(LAST)).all()
    ends = select(TrialRow.session_id, func.max(TrialRow.recorded_at)).where(TrialRow.study_id == owner)
    last_of = {row[0]: row[1] for row in session.execute(ends.group_by(TrialRow.session_id))}
    spans = select(SessionRow.id, SessionRow.started_at, SessionRow.finished_at).where(SessionRow.study_id == owner)
    active_s = sum(
        (max(begun, ended or last_of.get(key, begun)) - begun).total_seconds()
        for key, begun, ended in session.execute(spans)
    )
    ordered = tuple(sorted(split, key=lambda each: -each.seconds))
    return StudyCosts(by_verdict=ordered, pace=_pace(ordered, times, active_s))


LAST = 50
"""Trials from which the pace of now is taken."""


def _pace(split: Sequence[Cost], times: Sequence[datetime], active_s: float) -> Pace | None:
    trials, seconds = sum(each.trials for each in split), sum(each.seconds for each in split)
    if len(times) < 2 or not active_s:
        return None
    last_s = (times[0] - times[-1]).total_seconds()
    return Pace(
        trials=trials,
        active_s=active_s,
        trials_an_hour=3600 * trials / active_s,
        last_trials_an_hour=3600 * (len(times) - 1) / last_s if last_s else 0.0,
        busy_share=seconds / active_s,
    )


@reads
def in_both(store: Store, session: Session, first: str, second: str) -> list[tuple[Latency, Latency]]:
    """Of each variant that two studies have judged, what they say of it. Raises StoreError."""
    one, other = aliased(TrialRow), aliased(TrialRow)
    columns = [(case((each.revoked_at.is_(None), each.objective)), each.median_us) for each in (one, other)]
    ids = [study_id(session, store, name) for name in (first, second)]
    same = and_(other.study_id == ids[1], one.variant_digest == other.variant_digest, other.judged)
    query = select(*columns[0], *columns[1]).select_from(one).join(other, same)
    found = session.execute(query.where(one.study_id == ids[0], one.judged))
    return [(_latency(*row[:2]), _latency(*row[2:])) for row in found]


def _latency(objective: float | None, us: float | None) -> Latency:
    return None if objective is None or us is None else (float(objective), float(us))
