"""The storage that the driver gives to Optuna: what it remembers is what lies in the database, as Optuna reads it."""

import math
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.distributions import CategoricalDistribution
from optuna.exceptions import UpdateFinishedTrialError
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, TrialState

from autotuner.store import Store
from tests.helpers.recorded import measured

NAME = "scalar-abc"


@pytest.fixture
def study(store: Store) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study(storage=store.optuna_storage(), study_name=NAME)


def as_optuna_reads(path: Path) -> list[FrozenTrial]:
    """The trials in the file, by Optuna's own storage."""
    return optuna.load_study(study_name=NAME, storage=RDBStorage(f"sqlite:///{path}")).get_trials()


def ask(study: optuna.Study, tile: int) -> optuna.Trial:
    """A trial with its two parameters."""
    study.enqueue_trial({"TILE": tile})
    trial = study.ask()
    trial.suggest_categorical("TILE", (8, 16, 32))
    trial.suggest_categorical("MODE", ("a",))
    return trial


def test_what_is_remembered_is_what_is_written(study: optuna.Study, store: Store, path: Path) -> None:
    """Every way in which a trial begins, changes and ends; datetimes, order and types included."""
    complete, rejected, failed, running = (ask(study, tile) for tile in (8, 16, 32, 8))
    complete.set_constraint("gate", 0.0)
    complete.set_user_attr("note", [1, {"a": None}])
    complete.report(3.0, 1)
    study.tell(complete, 0.25)
    rejected.set_constraint("gate", 1.0)
    study.tell(rejected, math.inf)
    study.tell(failed, state=TrialState.FAIL)
    running.set_constraint("gate", 0.0)
    running.storage.set_trial_system_attr(running._trial_id, "twice", 1)
    running.storage.set_trial_system_attr(running._trial_id, "twice", (2, 3))
    study.enqueue_trial({"TILE": 16})
    store.optuna_storage().flush()
    assert [trial.state.name for trial in study.trials] == ["COMPLETE", "COMPLETE", "FAIL", "RUNNING", "WAITING"]
    assert study.trials == as_optuna_reads(path)
    assert [list(trial.params) for trial in study.trials[:4]] == [["TILE", "MODE"]] * 4


def test_a_trial_is_whole_after_a_flush_and_before_anything_is_recorded(
    study: optuna.Study, store: Store, session: int, path: Path
) -> None:
    """A driver that is killed meanwhile leaves a trial without parameters or with all of them."""
    trial = ask(study, 8)
    assert not as_optuna_reads(path)[0].params
    store.flush()
    assert as_optuna_reads(path)[0].params == {"TILE": 8, "MODE": "a"}
    trial.set_constraint("gate", 0.0)
    assert not as_optuna_reads(path)[0].constraints
    store.record(NAME, session, trial.number, measured(8, 80.0))
    assert as_optuna_reads(path)[0].constraints == {"gate": 0.0}


def test_trials_that_another_program_adds_are_seen(study: optuna.Study, path: Path) -> None:
    """Numbers stay unique, and what waits in the queue is asked for."""
    assert ask(study, 8).number == 0
    other = optuna.load_study(study_name=NAME, storage=RDBStorage(f"sqlite:///{path}"))
    other.enqueue_trial({"TILE": 32})
    assert study.ask().number == 2
    assert [trial.state.name for trial in study.trials] == ["RUNNING", "WAITING", "RUNNING"]
    queued = study.ask()
    assert queued.number == 1
    assert queued.suggest_categorical("TILE", (8, 16, 32)) == 32


def test_an_ended_trial_is_not_changed(study: optuna.Study, store: Store) -> None:
    trial = ask(study, 8)
    study.tell(trial, 1.0)
    storage, key = store.optuna_storage(), trial._trial_id
    with pytest.raises(UpdateFinishedTrialError):
        storage.set_trial_param(key, "MORE", 0.0, CategoricalDistribution((1,)))
    with pytest.raises(UpdateFinishedTrialError):
        storage.set_trial_system_attr(key, "more", 1)
    with pytest.raises(UpdateFinishedTrialError):
        storage.set_trial_state_values(key, TrialState.FAIL)
    with pytest.raises(ValueError, match="CategoricalDistribution does not support dynamic value space"):
        ask(study, 16).storage.set_trial_param(key + 1, "MODE", 0.0, CategoricalDistribution(("a", "b")))


def test_what_ctrl_c_meets_as_it_is_written_is_written_once(
    study: optuna.Study, store: Store, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(study, 8)
    write = store.database.write_plainly

    def interrupted(*given: Any) -> None:
        write(*given)
        raise KeyboardInterrupt

    monkeypatch.setattr(store.database, "write_plainly", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.flush()
    monkeypatch.undo()
    store.flush()
    assert [trial.params for trial in as_optuna_reads(path)] == [{"TILE": 8, "MODE": "a"}]
