"""The study store: our tables beside Optuna's in one database. `Store` writes, `queries` reads.

It holds and finds; which trial is the best is decided above it (tuning/finals/standings.py). Nothing outside this
package imports sqlalchemy; what crosses its border is in `records`.
"""

from autotuner.store import figures, queries
from autotuner.store.lease import Lease
from autotuner.store.records import (
    Finalist,
    FinalsRecord,
    FinalsResult,
    JudgedTrial,
    Lineup,
    ListedTrial,
    MeasuredTrial,
    OtherCache,
    Proof,
    Revision,
    SessionRecord,
    StudyProgress,
    StudyRecord,
    TrialRecord,
    Validation,
    ValidationRecord,
)
from autotuner.store.store import Store

__all__ = [
    "Finalist",
    "FinalsRecord",
    "FinalsResult",
    "JudgedTrial",
    "Lease",
    "Lineup",
    "ListedTrial",
    "MeasuredTrial",
    "OtherCache",
    "Proof",
    "Revision",
    "SessionRecord",
    "Store",
    "StudyProgress",
    "StudyRecord",
    "TrialRecord",
    "Validation",
    "ValidationRecord",
    "figures",
    "queries",
]
