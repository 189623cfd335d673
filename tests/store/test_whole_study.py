"""A study with all its rows: the same data in every store, renamed, deleted; what is no study is refused whole."""

import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select
from typer.testing import CliRunner

from autotuner.cli.app import app
from autotuner.store import Store, queries, whole_study
from autotuner.tuning.finals import standings
from autotuner.values.errors import InputError, StoreError
from tests.helpers import simulated
from tests.helpers.driven import swept
from tests.helpers.stores import sample_store, transaction

Document = dict[str, Any]


@pytest.fixture
def sample(tmp_path: Path) -> Store:
    sample_store(tmp_path / "sample.db")
    return Store.open(str(tmp_path / "sample.db"))


def _data(store: Store) -> Document:
    found: Document = json.loads(json.dumps(whole_study.data_of(store, queries.resolve_study(store))))
    return found


def test_a_study_is_the_same_data_in_another_store(sample: Store, opened: Store) -> None:
    data = _data(sample)
    swept(opened, simulated.backend(), 3)
    name = whole_study.add(opened, data)
    assert json.loads(json.dumps(whole_study.data_of(opened, name))) == data
    assert standings.leaderboard(opened, name) == standings.leaderboard(sample, name)
    assert queries.progress(opened, name) == queries.progress(sample, name)
    with pytest.raises(StoreError, match=r"has .* already"):
        whole_study.add(opened, data)
    whole_study.rename(opened, name, "kept")
    whole_study.remove(opened, "kept")
    whole_study.add(opened, data)
    assert json.loads(json.dumps(whole_study.data_of(opened, name))) == data


def test_a_driver_goes_on_with_a_study_that_was_copied(store: Store, tmp_path: Path) -> None:
    first = swept(store, simulated.backend(), 6)
    with Store.open(str(tmp_path / "other.db")) as other:
        whole_study.add(other, _data(store))
        backend = simulated.backend()
        swept(other, backend, 9)
        assert queries.judged_count(other, first) == 9
        assert len(backend.built) == 3


def test_a_study_is_renamed_and_deleted_with_all_its_rows(sample: Store) -> None:
    name = queries.resolve_study(sample)
    whole_study.rename(sample, name, "kept")
    assert queries.names(sample) == ("kept",)
    assert sample.optuna_storage().get_study_id_from_name("kept")
    for odd in ("\n", "", "x" * 201, "../kept", "\x1b[31m"):
        with pytest.raises(InputError, match="1 to 200 printable characters, and no /"):
            whole_study.rename(sample, "kept", odd)
    with sample.lease("kept"), pytest.raises(StoreError):
        whole_study.remove(sample, "kept")
    whole_study.remove(sample, "kept")
    with transaction(sample) as session:
        for table in whole_study.TABLES.values():
            assert session.scalar(select(func.count()).select_from(table)) == 0, table


def _without_optuna(data: Document) -> None:
    data["studies"] = []


def _points_nowhere(data: Document) -> None:
    data["at_trial"][0][1] = 2


def _no_outcome(data: Document) -> None:
    data["at_trial"][0] = ["{}" if str(each).startswith("{") else each for each in data["at_trial"][0]]


def _pickled(data: Document) -> None:
    data["study_system_attributes"].append([1, 1, "cma:optimizer", '"00"'])


def _another_table(data: Document) -> None:
    data["at_lease"] = []


@pytest.mark.parametrize("name", ["../../.profile", "\x1b]0;mine\x07", ""])
def test_a_study_of_somebody_else_has_a_name_that_is_one(sample: Store, store: Store, name: str) -> None:
    """A name is part of a file's, of an address, and of what a terminal shows."""
    data = _data(sample)
    (column,) = (place for place, each in enumerate(whole_study.TABLES["at_study"].columns) if each.name == "name")
    (optunas,) = (
        place for place, each in enumerate(whole_study.TABLES["studies"].columns) if each.name == "study_name"
    )
    data["at_study"][0][column] = data["studies"][0][optunas] = name
    with pytest.raises(InputError, match="1 to 200 printable characters, and no /"):
        whole_study.add(store, data)
    assert queries.names(store) == ("scalar-abc",)


@pytest.mark.parametrize("harm", [_without_optuna, _points_nowhere, _no_outcome, _pickled, _another_table])
def test_what_is_no_study_is_refused_and_nothing_written(harm: Any, sample: Store, store: Store) -> None:
    data = _data(sample)
    harm(data)
    with pytest.raises(InputError, match="its rows are not those of a study"):
        whole_study.add(store, data)
    assert queries.names(store) == ("scalar-abc",)


def test_commands(tmp_path: Path) -> None:
    name, at = sample_store(tmp_path / "studies.db"), ("--store", str(tmp_path / "studies.db"))

    def said(*words: str) -> tuple[int, str]:
        made = CliRunner().invoke(app, ["study", *words, *at])
        return made.exit_code, made.output or str(made.exception)

    assert name in said("list")[1]
    assert said("delete", name) == (1, f"{name} has 8 trials, which nothing brings back: `--yes` deletes it")
    assert said("rename", name, "kept") == (0, f"{name} is kept now\n")
    assert said("delete", "kept", "--yes") == (0, "kept is deleted, with 8 trials\n")
    assert said("list") == (0, f"No study yet: run `autotuner tune --store {at[1]}`.\n")
