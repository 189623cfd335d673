"""The study store on real SQLite files: what is recorded, what is refused, and what the file says when it cannot."""

from __future__ import annotations

import math
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import optuna
import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from autotuner.errors import DiskFullError, StoreError
from autotuner.outcome import Measurement, Outcome
from autotuner.report import GateReport
from autotuner.store import Store, database, migrations, queries
from autotuner.store.tables import Base
from autotuner.verdict import Verdict
from tests.recorded import (
    CALIBRATION,
    deduplicated,
    measured,
    measurement,
    raced_out,
    record_all,
    rejected,
    study_record,
    variant,
)

# Recording and finding ------------------------------------------------------------------------------------------


def test_a_recorded_outcome_is_found_whole(store: Store, session: int) -> None:
    outcome = measured(16, 80.0)
    store.record("scalar-abc", session, 0, outcome)
    assert store.find("scalar-abc", outcome.variant.digest) == outcome
    assert store.find("scalar-abc", variant(32).digest) is None


def test_an_outcome_with_nan_and_infinity_survives(store: Store, session: int) -> None:
    outcome = rejected(16).model_copy(update={"seconds": {"check": 1.0}, "stderr_tail": "nan\x1b[0m \N{SNOWMAN}"})
    store.record("scalar-abc", session, 0, outcome)
    assert store.find("scalar-abc", outcome.variant.digest) == outcome
    assert math.isinf(store.judged_numbers("scalar-abc")[0].objective)


def test_recording_again_changes_nothing_and_another_variant_is_refused(store: Store, session: int) -> None:
    store.record("scalar-abc", session, 0, measured(16, 80.0))
    store.record("scalar-abc", session, 0, measured(16, 70.0))
    assert queries.trial(store, "scalar-abc", 0).outcome == measured(16, 80.0)
    with pytest.raises(StoreError, match="trial 0 is recorded with another variant"):
        store.record("scalar-abc", session, 0, measured(32, 80.0))
    with pytest.raises(StoreError, match="was judged as trial 0"):
        store.record("scalar-abc", session, 1, measured(16, 60.0))


def test_a_repeated_ask_is_answered_and_recorded_once(store: Store, session: int) -> None:
    record_all(store, session, [measured(16, 80.0), rejected(32), measured(64, 90.0)])
    store.revoke("scalar-abc", 2, "wrong")
    for number, tile in ((3, 16), (4, 32), (5, 64)):
        found = store.find("scalar-abc", variant(tile).digest)
        assert found is not None
        store.record("scalar-abc", session, number, found)
    assert list(store.judged_numbers("scalar-abc")) == [0, 1, 2]


def test_a_fault_of_ours_is_recorded_but_the_variant_is_not_judged(store: Store, session: int) -> None:
    store.record("scalar-abc", session, 0, rejected(16, Verdict.INFRA_ERROR, "worker.lost"))
    assert store.find("scalar-abc", variant(16).digest) is None
    store.record("scalar-abc", session, 1, measured(16, 80.0))
    assert store.find("scalar-abc", variant(16).digest) == measured(16, 80.0)
    assert list(store.judged_numbers("scalar-abc")) == [0, 1]
    assert queries.summary(store, "scalar-abc").judged == 1


def test_blocks_are_kept_raw(store: Store, session: int, path: Path) -> None:
    store.record("scalar-abc", session, 0, measured(16, 80.0))
    store.record("scalar-abc", session, 1, deduplicated(32, measured(16, 80.0)))
    with sqlite3.connect(path) as raw:
        rows = raw.execute("SELECT problem, block, variant_us FROM at_block ORDER BY block").fetchall()
    raw.close()
    assert rows == [(0, 0, 80.0 * 0.99), (0, 1, 80.0), (0, 2, 80.0 * 1.01)]


@pytest.mark.parametrize(
    "outcome",
    [
        rejected(16).model_copy(update={"measurement": measurement(50.0)}),
        measured(16, 50.0).model_copy(update={"gate": None}),
        measured(16, 50.0).model_copy(update={"gate": GateReport(artifact="a", checks=())}),
        measured(16, 50.0).model_copy(update={"measurement": None}),
        deduplicated(16, measured(32, 50.0)).model_copy(update={"original": None}),
        measured(16, 50.0).model_copy(update={"measurement": Measurement(timings=(), objective=-1.0, cache="cold")}),
    ],
)
def test_no_latency_without_a_pass(store: Store, session: int, outcome: Outcome) -> None:
    with pytest.raises(ValueError, match="outcome"):
        store.record("scalar-abc", session, 0, outcome)
    assert not store.judged_numbers("scalar-abc")


def test_the_database_itself_refuses_an_objective_for_a_reject(store: Store, session: int, path: Path) -> None:
    store.record("scalar-abc", session, 0, rejected(16))
    raw = sqlite3.connect(path)
    with pytest.raises(sqlite3.IntegrityError, match="latency"):
        raw.execute("UPDATE at_trial SET objective = -3.0")
    raw.close()


def test_a_program_is_found_under_its_measured_original(store: Store, session: int) -> None:
    original = measured(16, 80.0, program="p1")
    record_all(store, session, [original, deduplicated(32, original), rejected(64)])
    found = store.find_program("scalar-abc", "p1")
    assert found is not None
    assert (found.number, found.outcome) == (0, original)
    assert store.find_program("scalar-abc", "p2") is None


def test_unknown_names_are_refused(store: Store, session: int) -> None:
    for ask in (
        lambda: store.record("other", session, 0, measured(16, 80.0)),
        lambda: store.find("other", "d"),
        lambda: store.judged_numbers("other"),
        lambda: store.revoke("scalar-abc", 7, "no"),
        lambda: store.finish_session(99),
        lambda: queries.trial(store, "scalar-abc", 7),
        lambda: queries.leaderboard(store, "other"),
    ):
        with pytest.raises(StoreError):
            ask()


def test_ensure_study_is_idempotent_but_a_changed_space_is_another_study(store: Store) -> None:
    store.ensure_study(study_record().model_copy(update={"sampler": "random", "seed": 1}))
    kept = queries.study(store, "scalar-abc")
    assert (kept.sampler, kept.seed) == ("evolution", 2**40)
    assert kept.model_copy(update={"created_at": None}) == study_record()
    with pytest.raises(StoreError, match="another study is named"):
        store.ensure_study(study_record(space_digest="e" * 64))


# The file, the schema, Optuna -----------------------------------------------------------------------------------


def test_both_engines_have_the_settings(store: Store) -> None:
    wanted = {"synchronous": 1, "journal_mode": "wal", "busy_timeout": 60000, "foreign_keys": 1}
    optuna_engine = store.optuna_storage().engine
    for engine in (optuna_engine, store.database._engine):
        with engine.connect() as connection:
            assert {name: connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in wanted} == wanted


def test_an_optuna_study_lives_in_the_same_file(store: Store, session: int, path: Path) -> None:
    study = optuna.create_study(storage=store.optuna_storage(), study_name="scalar-abc")
    trial = study.ask()
    tile = trial.suggest_int("BLOCK_M", 1, 64)
    store.record("scalar-abc", session, trial.number, measured(tile, 80.0))
    study.tell(trial, math.log(0.8))
    with Store.open(str(path), create=False) as again:
        assert again.judged_numbers("scalar-abc")[0].variant == variant(tile)
        loaded = optuna.load_study(study_name="scalar-abc", storage=again.optuna_storage())
        assert loaded.best_value == pytest.approx(math.log(0.8))
        optuna.delete_study(study_name="scalar-abc", storage=again.optuna_storage())
        assert queries.best(again, "scalar-abc") is not None


def test_our_tables_join_a_file_that_optuna_made(path: Path) -> None:
    storage = optuna.storages.RDBStorage(f"sqlite:///{path}")
    optuna.create_study(storage=storage, study_name="theirs")
    storage.remove_session()
    storage.engine.dispose()
    with pytest.raises(StoreError, match="no autotuner studies"):
        Store.open(str(path), create=False)
    with Store.open(str(path)) as store:
        assert optuna.get_all_study_names(store.optuna_storage()) == ["theirs"]
        assert queries.studies(store) == ()


def test_a_path_with_odd_characters_works(tmp_path: Path) -> None:
    path = tmp_path / "a {b} 100% ?#" / "s 1.db"
    path.parent.mkdir()
    with Store.open(str(path)) as store:
        optuna.create_study(storage=store.optuna_storage(), study_name="x")
    assert path.exists()
    with Store.open(str(path), create=False) as store:
        assert optuna.get_all_study_names(store.optuna_storage()) == ["x"]


def test_the_migrations_make_what_the_tables_say(store: Store) -> None:
    def ours(name: str | None, kind: str, _parents: object) -> bool:
        return kind != "table" or (str(name).startswith("at_") and name != migrations.VERSION_TABLE)

    with store.database._engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"include_name": ours, "compare_type": True})
        assert compare_metadata(context, Base.metadata) == []
        tables = {name for (name,) in connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert all(name.startswith("at_") for name in tables)
    assert tables == {*Base.metadata.tables, migrations.VERSION_TABLE}


def test_the_head_is_the_last_migration() -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    config.set_main_option("path_separator", "os")
    script = ScriptDirectory.from_config(config)
    assert script.get_heads() == [migrations.HEAD]
    assert script.get_bases() == [migrations.OLDEST]


@pytest.mark.parametrize(("version", "word"), [("9999", "newer"), ("0000", "older")])
def test_a_schema_of_another_release_is_refused(store: Store, path: Path, version: str, word: str) -> None:
    store.close()
    with sqlite3.connect(path) as raw:
        raw.execute("UPDATE at_version SET version_num = ?", (version,))
    raw.close()
    with pytest.raises(StoreError, match=word):
        Store.open(str(path))


def test_two_processes_may_make_the_store_at_once(path: Path) -> None:
    code = f"from autotuner.store import Store; Store.open({str(path)!r}).close()"
    children = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]
    assert [child.wait(timeout=60) for child in children] == [0, 0]


def bad_paths(folder: Path) -> Iterator[tuple[str, str]]:
    (folder / "text.db").write_text("this is no database, it is a text " * 100)
    yield str(folder / "text.db"), "not a study store"
    yield str(folder / "missing" / "studies.db"), "is not a folder"
    yield str(folder), "is a folder"
    yield "sqlite://", "path of a file"
    yield "mysql://host/x", "mysql"
    yield "://", "cannot be read"
    yield "nonsense://x", "nonsense"


def test_what_is_no_store_is_refused_in_one_line(tmp_path: Path) -> None:
    for url, words in bad_paths(tmp_path):
        with pytest.raises(StoreError, match=words) as caught:
            Store.open(url)
        assert "\n" not in str(caught.value)
    with pytest.raises(StoreError, match="does not exist"):
        Store.open(str(tmp_path / "none.db"), create=False)
    assert not (tmp_path / "none.db").exists()


def test_a_password_is_not_shown() -> None:
    with pytest.raises(StoreError) as caught:
        Store.open("postgresql+psycopg://someone:secret@127.0.0.1:1/x")
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_damaged_file_is_told(store: Store, session: int, path: Path) -> None:
    record_all(store, session, [measured(tile, 80.0) for tile in range(1, 30)])
    store.close()
    content = bytearray(path.read_bytes())
    for page in range(2, len(content) // 4096):
        content[page * 4096 : page * 4096 + 512] = b"\xff" * 512
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"damaged|not a study store"), Store.open(str(path)) as broken:
        queries.leaderboard(broken, "scalar-abc")


def test_a_folder_that_cannot_be_written_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.getuid() == 0:  # root may write anywhere: ask the question as somebody else
        monkeypatch.setattr(os, "access", lambda where, mode: not (mode & os.W_OK and Path(where) == path.parent))
    else:
        path.parent.chmod(0o500)
    try:
        with pytest.raises(StoreError, match="cannot be written by this user"):
            Store.open(str(path))
    finally:
        path.parent.chmod(0o700)


def test_a_file_that_cannot_be_written_is_told(store: Store, path: Path) -> None:
    store.close()
    url = f"sqlite:///file:{path}?mode=ro&uri=true"
    with pytest.raises(StoreError, match="cannot be written"), Store.open(url) as closed:
        closed.ensure_study(study_record("another"))


def test_a_full_disk_is_told_and_leaves_no_half(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.open(str(path)) as store:
        store.ensure_study(study_record())
        number = store.start_session("scalar-abc", CALIBRATION, {})
        store.optuna_storage()
    pages = path.stat().st_size // 4096 + 4
    monkeypatch.setattr(database, "PRAGMAS", (*database.PRAGMAS, f"max_page_count = {pages}"))
    with Store.open(str(path)) as full:
        with pytest.raises(DiskFullError, match="free space"):
            record_all(full, number, [measured(tile, 80.0) for tile in range(1, 200)])
        with pytest.raises(DiskFullError, match="free space"):
            fill_with_optuna_studies(full)
    monkeypatch.undo()
    with Store.open(str(path)) as store, store.database.reading() as session:
        trials = len(store.judged_numbers("scalar-abc"))
        assert session.connection().exec_driver_sql("SELECT count(*) FROM at_block").scalar() == 3 * trials


def fill_with_optuna_studies(store: Store) -> None:
    with store.errors():
        for name in range(100):
            optuna.create_study(storage=store.optuna_storage(), study_name=f"{name:0500}")


def test_a_postgresql_store_works() -> None:
    url = os.environ.get("AUTOTUNER_TEST_POSTGRESQL")
    if not url:
        pytest.skip("set AUTOTUNER_TEST_POSTGRESQL to the URL of an empty database")
    with Store.open(url) as store:
        store.ensure_study(study_record())
        with store.lease() as held:
            number = store.start_session("scalar-abc", CALIBRATION, {})
            original = measured(16, 50.0, program="p")
            record_all(store, number, [original, deduplicated(32, original), rejected(64), raced_out(8, 300.0)])
            held.beat()
            with pytest.raises(StoreError, match="is being driven"), store.lease():
                pass
        assert queries.summary(store, "scalar-abc").best_number == 0
        assert store.revoke("scalar-abc", 0, "wrong") == (0, 1)
        assert [entry.number for entry in queries.leaderboard(store, "scalar-abc")] == [3]
        optuna.create_study(storage=store.optuna_storage(), study_name="scalar-abc")
        with store.database._engine.connect() as connection:
            opts = {"include_name": lambda n, k, _: k != "table" or (n in Base.metadata.tables), "compare_type": True}
            assert compare_metadata(MigrationContext.configure(connection, opts=opts), Base.metadata) == []
