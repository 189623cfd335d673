"""The study store: our tables beside Optuna's in one database. `Store` writes, `queries` reads.

It holds and finds; which trial is the best is decided above it (tuning/finals/standings.py). Nothing outside this
package imports sqlalchemy; what crosses its border is in `records`.
"""

from autotuner.store import figures as figures, queries as queries
from autotuner.store.lease import Lease as Lease
from autotuner.store.records import (
    Finalist as Finalist,
    FinalsRecord as FinalsRecord,
    FinalsResult as FinalsResult,
    JudgedTrial as JudgedTrial,
    Lineup as Lineup,
    ListedTrial as ListedTrial,
    MeasuredTrial as MeasuredTrial,
    OtherCache as OtherCache,
    Proof as Proof,
    Revision as Revision,
    SessionRecord as SessionRecord,
    StudyProgress as StudyProgress,
    StudyRecord as StudyRecord,
    TrialRecord as TrialRecord,
    Validation as Validation,
    ValidationRecord as ValidationRecord,
)
from autotuner.store.store import Store as Store
