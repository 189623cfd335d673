"""What the baselines take on a device that nobody disturbs: the best that the store's calibrations found there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from statistics import median

from sqlalchemy import select
from sqlalchemy.orm import Session

import autotuner.ops  # noqa: F401  # stored problems become those of their op
from autotuner.store.database import reads
from autotuner.store.records import StudyRecord
from autotuner.store.store import Store
from autotuner.store.tables import SessionRow, StudyRow, TrialRow
from autotuner.values.outcome import Calibration, Device
from autotuner.values.problem import Problem

LOOKED_AT = 50
"""Sessions on such a device, the last ones, whose calibrations are looked at."""
NO_MATTER = frozenset({"autotuner", "device", "optuna", "python"})
"""What of a session's environment the time of a baseline does not depend on; devices of one name count as one."""


@reads
def fastest_baselines(
    store: Store, session: Session, study: StudyRecord, environment: Mapping[str, str]
) -> dict[Problem, float]:
    """Microseconds of the fastest baseline on each of the study's problems that was calibrated before: in any study on
    such a device with the same cache policy and threads, under the same versions, while nobody disturbed.

    Of a study with one problem the typical time beside its variants counts as well, should it be shorter. What came
    before a session that the user called calm is left out.
    """
    best: dict[Problem, float] = {}
    for found, beside_us in _sessions(session, study, environment):
        for timing in found.timings:
            times = [timing.median_us, *(us for us in beside_us if us > 0)]
            if timing.problem in study.problems:
                best[timing.problem] = min(*times, best.get(timing.problem, timing.median_us))
        if found.anew:
            break
    return best


def _sessions(
    session: Session, study: StudyRecord, environment: Mapping[str, str]
) -> list[tuple[Calibration, list[float]]]:
    """The undisturbed calibrations, the last one first, each with what the baseline took beside variants."""
    columns = SessionRow.id, SessionRow.calibration, SessionRow.environment, SessionRow.study_id
    query = select(*columns).where(SessionRow.study_id.in_(_studies(session, study))).order_by(SessionRow.id.desc())
    found = []
    for row in session.execute(query.limit(LOOKED_AT)):
        calibration = Calibration.model_validate_json(row.calibration)
        if calibration.disturbed is None and _matter(json.loads(row.environment)) == _matter(environment):
            found.append((calibration, _beside(session, row.id, calibration)))
    return found


def _studies(session: Session, study: StudyRecord) -> list[int]:
    """The studies on such a device, with such facts (threads are one of them), under the same cache policy."""
    wanted = _identity(study.device)
    query = select(StudyRow.id, StudyRow.device).where(StudyRow.cache == study.cache)
    return [row.id for row in session.execute(query) if _identity(Device.model_validate_json(row.device)) == wanted]


def _identity(device: Device) -> tuple[object, ...]:
    return device.backend, device.name, device.facts


def _matter(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name not in NO_MATTER}


def _beside(session: Session, session_id: int, calibration: Calibration) -> list[float]:
    """The median of what the baseline took beside the session's variants, microseconds; nothing where problems are
    several, as trials keep one figure."""
    if len({timing.problem for timing in calibration.timings}) != 1:
        return []
    query = select(TrialRow.baseline_us).where(TrialRow.session_id == session_id, TrialRow.objective.is_not(None))
    times = [us for us in session.scalars(query) if us]
    return [median(times)] if times else []
