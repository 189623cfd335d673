"""What Optuna's own tools are told beside values and states: verdicts, reasons, revocations, what finals confirmed."""

import math
from pathlib import Path

import optuna
import pytest
from optuna.storages import RDBStorage

from autotuner.store import Store
from autotuner.tuning import optuna_marks
from autotuner.tuning.finals import standings
from autotuner.tuning.finals.finals import Finals
from autotuner.tuning.finals.retrials import Retrials
from autotuner.tuning.run.driver import Budget, Driver
from autotuner.tuning.run.plan import Plan
from tests.helpers import simulated
from tests.helpers.fake_line import FakeLine
from tests.helpers.inline_executor import InlineExecutor


def read(path: Path, name: str) -> optuna.Study:
    """As Optuna reads it, with none of our code."""
    return optuna.load_study(study_name=name, storage=RDBStorage(f"sqlite:///{path}"))


def test_a_study_tells_what_became_of_each_trial(path: Path) -> None:
    with Store.open(str(path)) as store:
        plan = Plan(simulated.small_space(), simulated.DEVICE, simulated.conditions(), sampler="random")
        executor = InlineExecutor(FakeLine(simulated.truth), fresh=lambda: FakeLine(simulated.truth))
        driver = Driver(store, executor, plan)
        driver.run(Budget(trials=12))
        during = {trial.number: trial.user_attrs for trial in read(path, driver.name).trials}
        Finals(Retrials(store, driver.name, simulated.conditions(), executor, {}), "").run()
        confirmed, outcomes = standings.every_confirmed(store, driver.name), store.judged_numbers(driver.name)
        optuna_marks.mark(store, driver.name)  # a second time changes nothing
    study = read(path, driver.name)
    assert study.metric_names == ["ln(t_variant / t_baseline)"]
    assert study.user_attrs["device"] == simulated.DEVICE.name
    assert study.user_attrs["problems"] == [str(problem) for problem in plan.record.problems]
    assert confirmed
    for trial in study.trials:
        outcome, found = outcomes[trial.number], trial.user_attrs
        assert found["verdict"] == outcome.verdict.value
        assert found["verdict"] == during[trial.number]["verdict"]
        if outcome.fault is not None:
            assert found["reason"] == f"{outcome.fault.code}: {outcome.fault.detail}"
            assert "microseconds" not in found
        else:
            assert trial.value is not None
            assert found["microseconds"] == pytest.approx(100.0 * math.exp(trial.value))
        assert ("confirmed" in found) == (trial.number in confirmed)
        assert "revoked" not in found
