"""The study store: our tables beside Optuna's in one database. `Store` writes, `queries` reads.

Nothing outside this package imports sqlalchemy; what crosses its border is in `records`.
"""

from __future__ import annotations

from autotuner.store import queries
from autotuner.store.lease import Lease
from autotuner.store.records import (
    Best,
    Entry,
    Finalist,
    FinalsRecord,
    FinalsSummary,
    JudgedTrial,
    Lineup,
    SessionRecord,
    Spread,
    StudyRecord,
    StudySummary,
    TrialRecord,
)
from autotuner.store.store import Store

__all__ = [
    "Best",
    "Entry",
    "Finalist",
    "FinalsRecord",
    "FinalsSummary",
    "JudgedTrial",
    "Lease",
    "Lineup",
    "SessionRecord",
    "Spread",
    "Store",
    "StudyRecord",
    "StudySummary",
    "TrialRecord",
    "queries",
]
