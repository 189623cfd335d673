"""The study store: our tables beside Optuna's in one database. `Store` writes, `queries` reads.

It holds and finds; which trial is the best is decided above it (tuning/standings.py). Nothing outside this package
imports sqlalchemy; what crosses its border is in `records`.
"""

from __future__ import annotations

from autotuner.store import queries
from autotuner.store.lease import Lease
from autotuner.store.records import (
    Finalist,
    FinalsRecord,
    JudgedTrial,
    Lineup,
    MeasuredTrial,
    SessionRecord,
    Spread,
    StudyProgress,
    StudyRecord,
    TrialRecord,
)
from autotuner.store.store import Store

__all__ = [
    "Finalist",
    "FinalsRecord",
    "JudgedTrial",
    "Lease",
    "Lineup",
    "MeasuredTrial",
    "SessionRecord",
    "Spread",
    "Store",
    "StudyProgress",
    "StudyRecord",
    "TrialRecord",
    "queries",
]
