"""What Optuna's own tools are told of a study, so that they tell the truth: attributes of its trials and of itself.

Optuna knows a value and a state of a trial. Why a variant was rejected, what was revoked since and what finals have
confirmed are attributes of the user, which its dashboard and its data frames show. docs/reference/optuna.md has their
names.
"""

import warnings
from collections.abc import Mapping
from typing import Any

from optuna.study import Study

from autotuner.store import ListedTrial, Store, StudyRecord, queries
from autotuner.tuning.finals import standings
from autotuner.values.outcome import Outcome
from autotuner.values.ratio import Speedup

METRIC = "ln(t_variant / t_baseline)"
"""What a value is; smaller is faster."""
MOST = 500
"""Characters of a reason: attributes are cells of tables."""


def of_outcome(outcome: Outcome) -> dict[str, Any]:
    """The attributes of a trial that was just judged."""
    fault, found = outcome.fault, outcome.measurement
    marks: dict[str, Any] = {"verdict": outcome.verdict.value}
    if fault is not None:
        marks["reason"] = _reason(fault.code, fault.detail)
    if found is not None and outcome.verdict.has_latency:
        marks["microseconds"] = found.variant_us
    return marks


def mark(store: Store, study: str) -> None:
    """Brings the attributes of all trials up to date: verdicts, what was revoked, what the last finals confirmed. Does
    nothing to trials that have what they should. Raises StoreError."""
    confirmed = standings.every_confirmed(store, study)
    marks = {each.number: _of_listed(each, confirmed) for each in queries.listed(store, study)}
    store.optuna_storage().mark(study, marks)


def describe(study: Study, record: StudyRecord) -> None:
    """Says what the values of a study are, and of which device and problems."""
    if "device" in study.user_attrs:
        return
    with warnings.catch_warnings():  # Optuna calls names of metrics experimental
        warnings.simplefilter("ignore")
        study.set_metric_names([METRIC])
    study.set_user_attr("problems", [str(problem) for problem in record.problems])
    study.set_user_attr("device", record.device.name)


def _of_listed(trial: ListedTrial, confirmed: Mapping[int, Speedup]) -> dict[str, Any]:
    return {
        "verdict": trial.verdict.value,
        "reason": None if trial.fault_code is None else _reason(trial.fault_code, trial.fault_detail or ""),
        "microseconds": trial.median_us if trial.verdict.has_latency else None,
        "revoked": trial.revoked_reason,
        "confirmed": confirmed[trial.number].mid if trial.number in confirmed else None,
    }


def _reason(code: str, detail: str) -> str:
    return " ".join(f"{code}: {detail}".split())[:MOST]
