"""A study as Optuna's own tools see it, opened by its name from the store's file with none of our code: values, states,
verdicts, reasons, and what the finals confirmed."""

import math
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState

from autotuner.store import Store, queries
from autotuner.tuning import optuna_marks
from autotuner.tuning.finals import standings
from tests.helpers import simulated
from tests.helpers.driven import swept
from tests.helpers.simulated_finals import confirmed, executor

TRIALS = 25


def test_optuna_loads_what_became_of_each_trial(store: Store, path: Path) -> None:
    name = swept(store, simulated.backend(), TRIALS, sampler="random")
    during = optuna.load_study(study_name=name, storage=f"sqlite:///{path}").trials
    confirmed(store, name, executor(simulated.truth))
    optuna_marks.mark(store, name)  # a second time changes nothing
    raced, outcomes = standings.every_confirmed(store, name), dict(store.outcomes(name))
    study = optuna.load_study(study_name=name, storage=f"sqlite:///{path}")
    assert study.metric_names == ["ln(t_variant / t_baseline)"]
    assert study.user_attrs["device"] == simulated.DEVICE.name
    assert study.user_attrs["problems"] == [str(problem) for problem in queries.study(store, name).problems]
    assert raced
    assert len(study.trials) == TRIALS
    rejected = 0
    for trial in study.trials:
        outcome, found = outcomes[trial.number], trial.user_attrs
        assert (trial.state, trial.params) == (TrialState.COMPLETE, outcome.variant.point)
        assert trial.value == pytest.approx(outcome.objective)
        assert trial.constraints == {"gate": 0.0 if outcome.verdict.has_latency else 1.0}
        assert found["verdict"] == during[trial.number].user_attrs["verdict"] == outcome.verdict.value
        if outcome.fault is not None:
            rejected += 1
            assert found["reason"] == f"{outcome.fault.code}: {outcome.fault.detail}"
            assert "microseconds" not in found
        else:
            assert found["microseconds"] == pytest.approx(100.0 * math.exp(outcome.objective))
        assert ("confirmed" in found) == (trial.number in raced)
        assert "revoked" not in found
    assert 0 < rejected < TRIALS
    assert study.best_value == pytest.approx(min(outcome.objective for outcome in outcomes.values()))
    assert study.best_trial.constraints == {"gate": 0.0}
    assert math.isfinite(study.best_value)
