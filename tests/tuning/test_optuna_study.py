"""A study as Optuna's own tools see it: opened by its name from the store's file, with none of our code."""

import math
import subprocess
import sys
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState

from autotuner.store import Store
from autotuner.tuning.run.driver import Budget, Driver
from autotuner.tuning.run.plan import Plan
from autotuner.values.outcome import Outcome
from tests.helpers import simulated
from tests.helpers.inline_executor import InlineExecutor

TRIALS = 25


@pytest.fixture
def finished(path: Path) -> tuple[str, dict[int, Outcome]]:
    """The name of a finished study in the store's file, and what our own tables have of it."""
    with Store.open(str(path)) as store:
        plan = Plan(simulated.space(), simulated.DEVICE, simulated.conditions(), sampler="random")
        driver = Driver(store, InlineExecutor(simulated.backend()), plan)
        driver.run(Budget(trials=TRIALS))
        return driver.name, dict(store.judged_numbers(driver.name))


def test_optuna_loads_a_finished_study_from_the_file(path: Path, finished: tuple[str, dict[int, Outcome]]) -> None:
    name, outcomes = finished
    study = optuna.load_study(study_name=name, storage=f"sqlite:///{path}")
    assert len(study.trials) == TRIALS
    rejected = 0
    for trial in study.trials:
        outcome = outcomes[trial.number]
        assert trial.state == TrialState.COMPLETE
        assert trial.params == outcome.variant.point
        assert trial.value == pytest.approx(outcome.objective)
        assert trial.constraints == {"gate": 0.0 if outcome.verdict.has_latency else 1.0}
        rejected += not outcome.verdict.has_latency
    assert 0 < rejected < TRIALS
    assert study.best_value == pytest.approx(min(outcome.objective for outcome in outcomes.values()))
    assert study.best_trial.constraints == {"gate": 0.0}
    assert math.isfinite(study.best_value)


def test_optunas_command_lists_its_trials(path: Path, finished: tuple[str, dict[int, Outcome]]) -> None:
    name, _ = finished
    command = ["trials", "--study-name", name, "--storage", f"sqlite:///{path}", "--format", "value"]
    done = subprocess.run(
        [sys.executable, "-c", "from optuna.cli import main; main()", *command],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.count("COMPLETE") == TRIALS
