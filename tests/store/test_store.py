"""The study store on real SQLite files: what is recorded, what is refused, and what the file says when it cannot."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import optuna
import pytest

from autotuner.race.confirm import confirm
from autotuner.store import FinalsResult, Proof, Store, Validation, database, queries
from autotuner.tuning.finals import standings
from autotuner.values.errors import DiskFullError, StoreError
from autotuner.values.gate_report import CheckResult, GateReport
from autotuner.values.outcome import Measurement, Outcome
from autotuner.values.verdict import Verdict
from tests.helpers.processes import child, said
from tests.helpers.recorded import (
    CALIBRATION,
    PROBLEM,
    artifact,
    deduplicated,
    heat,
    hold_finals,
    lineup,
    measured,
    measurement,
    passed_gate,
    record_all,
    rejected,
    study_record,
)
from tests.helpers.refusing import refused
from tests.helpers.stores import all_finals, transaction

# Recording and finding ------------------------------------------------------------------------------------------


def test_recording_again_changes_nothing(store: Store, session: int) -> None:
    store.record("scalar-abc", session, 0, measured(16, 80.0))
    store.record("scalar-abc", session, 0, measured(16, 70.0))
    assert queries.trial(store, "scalar-abc", 0).outcome == measured(16, 80.0)


def test_a_variant_is_judged_once(store: Store, session: int) -> None:
    """Whatever became of it, and also where the number, too, is another variant's."""
    outcomes = [measured(16, 80.0), rejected(32), measured(64, 90.0)]
    record_all(store, session, outcomes)
    store.revoke("scalar-abc", 2, "wrong")
    for number, outcome in enumerate(outcomes):
        with pytest.raises(StoreError, match=f"the variant of trial {number + 3} was judged as trial {number}"):
            store.record("scalar-abc", session, number + 3, outcome)
        with pytest.raises(StoreError, match=f"trial {(number + 1) % 3} is recorded with another variant"):
            store.record("scalar-abc", session, (number + 1) % 3, outcome)
    assert list(dict(store.outcomes("scalar-abc"))) == [0, 1, 2]


def test_a_fault_of_ours_is_recorded_but_the_variant_is_not_judged(store: Store, session: int) -> None:
    store.record("scalar-abc", session, 0, rejected(16, Verdict.INFRA_ERROR, "worker.lost"))
    store.record("scalar-abc", session, 1, measured(16, 80.0))
    assert [o.verdict for o in dict(store.outcomes("scalar-abc")).values()] == [Verdict.INFRA_ERROR, Verdict.MEASURED]
    assert standings.summary(store, "scalar-abc").judged == 1


# What is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "outcome",
    [
        rejected(16).model_copy(update={"measurement": measurement(50.0)}),
        measured(16, 50.0).model_copy(update={"gate": None}),
        measured(16, 50.0).model_copy(update={"gate": GateReport(artifact="a", required=(), checks=())}),
        measured(16, 50.0).model_copy(update={"measurement": None}),
        deduplicated(16, measured(32, 50.0)).model_copy(update={"original": None}),
        measured(16, 50.0).model_copy(update={"measurement": Measurement(timings=(), objective=-1.0, cache="cold")}),
    ],
)
def test_no_latency_without_a_pass(store: Store, session: int, outcome: Outcome) -> None:
    with pytest.raises(ValueError, match="outcome"):
        store.record("scalar-abc", session, 0, outcome)
    assert not dict(store.outcomes("scalar-abc"))


def test_the_database_itself_refuses_an_objective_for_a_reject(store: Store, session: int, path: Path) -> None:
    store.record("scalar-abc", session, 0, rejected(16))
    raw = sqlite3.connect(path)
    with pytest.raises(sqlite3.IntegrityError, match="latency"):
        raw.execute("UPDATE at_trial SET objective = -3.0")
    raw.close()


def test_ensure_study_is_idempotent_but_a_changed_space_is_another_study(store: Store) -> None:
    store.ensure_study(study_record().model_copy(update={"sampler": "random", "seed": 1}))
    kept = queries.study(store, "scalar-abc")
    assert (kept.sampler, kept.seed) == ("evolution", 2**40)
    assert kept.model_copy(update={"created_at": None}) == study_record()
    with pytest.raises(StoreError, match="another study is named"):
        store.ensure_study(study_record(space_digest="e" * 64))


# The file, the schema, Optuna -----------------------------------------------------------------------------------


def test_a_path_with_odd_characters_works(tmp_path: Path) -> None:
    path = tmp_path / "a {b} 100% ?#" / "s 1.db"
    path.parent.mkdir()
    with Store.open(str(path)) as store:
        optuna.create_study(storage=store.optuna_storage(), study_name="x")
    assert path.exists()
    with Store.open(str(path), create=False) as store:
        assert optuna.get_all_study_names(store.optuna_storage()) == ["x"]


def test_processes_may_make_the_store_and_optunas_tables_at_once(path: Path) -> None:
    code = f"""
        import optuna.storages
        from autotuner.store import Store
        with Store.open({str(path)!r}) as store:
            print("open", flush=True)
            input()
            store.optuna_storage()
        """
    children = [child(code) for _ in range(2)]
    assert [said(each) for each in children] == ["open"] * 2
    for each in children:
        print(file=each.stdin, flush=True)
    assert [each.wait() for each in children] == [0] * 2
    for each in children:
        each.communicate()


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
        with refused(StoreError, words):
            Store.open(url)
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
        standings.leaderboard(broken, "scalar-abc")


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
    with Store.open(str(path)) as store, transaction(store) as session:
        trials = len(dict(store.outcomes("scalar-abc")))
        assert session.connection().exec_driver_sql("SELECT count(*) FROM at_block").scalar() == 3 * trials


def fill_with_optuna_studies(store: Store) -> None:
    for name in range(100):
        optuna.create_study(storage=store.optuna_storage(), study_name=f"{name:0500}")


# Finals and heats -----------------------------------------------------------------------------------------------------


MICROS = {16: 50.0, 32: 60.0}


def test_finals_are_read_back_whole(store: Store, session: int) -> None:
    record_all(store, session, [measured(16, 48.0), measured(32, 59.0)])
    line = lineup({16: 0, 32: 1}, {16: 48.0, 32: 59.0})
    heats = tuple(heat(MICROS, process) for process in range(3))
    number = store.start_finals("scalar-abc", line, {"torch": "2.12"})
    for each in heats:
        store.record_heat("scalar-abc", "finals", each, finals_id=number)
    check = CheckResult(code="G6.many", status="pass", seconds=10.0, launches=31_000)
    proof = Proof(number=0, digest=line.finalists[0].digest, checks=(check,))
    standing = FinalsResult(**dict(confirm(heats, line.tie, line.objective)), proofs=(proof,))
    store.finish_finals(number, standing)
    found = standings.finals(store, "scalar-abc")
    assert (found.id, found.study, found.environment) == (number, "scalar-abc", {"torch": "2.12"})
    assert (found.heats, found.standing, found.finalists, found.tie) == (heats, standing, line.finalists, line.tie)
    assert found.finished_at is not None
    assert found.finished_at >= found.started_at
    assert (found.blocks, found.revoked) == (40, ())


def test_validations_are_read_back_whole(store: Store, session: int) -> None:
    record_all(store, session, [measured(16, 48.0)])
    others = tuple(PROBLEM.model_copy(update={"seq_q": each, "seq_k": each}) for each in (701, 1441))
    validation = Validation(
        number=0,
        digest=artifact(16).digest,
        problems=others,
        vary=("seq_q", "seq_k"),
        baselines=("flash", "math"),
        gate=passed_gate(16),
        heats=(heat({16: 50.0}), heat({16: 51.0})),
    )
    assert queries.validations(store, "scalar-abc") == ()
    store.record_validation("scalar-abc", validation, {"torch": "2.12"})
    (found,) = queries.validations(store, "scalar-abc")
    assert (found.study, found.environment) == ("scalar-abc", {"torch": "2.12"})
    assert Validation(**{name: getattr(found, name) for name in Validation.model_fields}) == validation
    with pytest.raises(StoreError):
        store.record_validation("nothing", validation, {})


def test_finals_that_came_to_no_end_have_the_heats_that_were_run(store: Store) -> None:
    number = store.start_finals("scalar-abc", lineup({16: 0, 32: 1}, MICROS), {})
    for process in range(2):
        store.record_heat("scalar-abc", "finals", heat(MICROS, process), finals_id=number)
    assert standings.finals(store, "scalar-abc") is None
    (killed,) = all_finals(store, "scalar-abc")
    assert killed.heats == (heat(MICROS, 0), heat(MICROS, 1))
    assert (killed.finished_at, killed.standing) == (None, None)


# Damaged records ------------------------------------------------------------------------------------------------------


STUDY = "scalar-abc"


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    """A study with two trials, and finals of both."""
    with Store.open(str(tmp_path / "studies.db")) as store:
        store.ensure_study(study_record())
        session = store.start_session(STUDY, CALIBRATION, {"torch": "2.11"})
        record_all(store, session, [measured(32, 80.0), measured(64, 90.0)])
        hold_finals(store, {32: 80.0, 64: 90.0}, {32: 0, 64: 1})
    return tmp_path / "studies.db"


def damage(path: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute(statement, values).rowcount > 0
        connection.commit()


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("space_document", '{"name" "scalar"}'),
        ("space_document", '["scalar"]'),
        ("problems", '["(1,8,512,64)"]'),
        ("problems", "{}"),
        ("device", '{"backend": "cpu"}'),
    ],
)
def test_a_study_that_cannot_be_read(finished: Path, column: str, value: str) -> None:
    damage(finished, f"UPDATE at_study SET {column} = ?", value)
    with Store.open(str(finished)) as store, pytest.raises(StoreError, match="record that cannot be read"):
        queries.study(store, STUDY)


def test_finals_that_confirm_who_was_not_in_them(finished: Path) -> None:
    with closing(sqlite3.connect(finished)) as connection:
        (document,) = connection.execute("SELECT document FROM at_finals").fetchone()
    digest = document.partition('"digest":"')[2][:64]
    assert len(digest) == 64
    damage(finished, "UPDATE at_finals SET standing = replace(standing, ?, ?)", digest, "0" * 64)
    with Store.open(str(finished)) as store:
        for ask in (standings.best, standings.every_confirmed, standings.leaderboard):
            with pytest.raises(StoreError, match="which was not in them"):
                ask(store, STUDY)


@pytest.mark.parametrize("count", [4096, 8192, 20000])
def test_a_store_whose_end_is_garbled_is_not_written_to(finished: Path, count: int) -> None:
    with closing(sqlite3.connect(finished)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    garbled = finished.read_bytes()[:-count] + b"\xa5" * count
    finished.write_bytes(garbled)
    with refused(StoreError, r"is damaged \(.*\): restore a copy"):
        Store.open(str(finished))
    assert finished.read_bytes()[100:] == garbled[100:], "the header has the journal's mode, the rest is as it was"


def test_a_version_of_bytes(finished: Path) -> None:
    damage(finished, "UPDATE at_version SET version_num = ?", b"\xff\x00")
    with pytest.raises(StoreError, match="autotuner"):
        Store.open(str(finished))


def test_a_schema_that_is_no_text(finished: Path) -> None:
    """SQLite quotes it in its error, and Python cannot read that."""
    with closing(sqlite3.connect(finished)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(
            "UPDATE sqlite_master SET name = CAST(? AS TEXT), sql = 'CREATE' WHERE name = 'at_trial'", (b"\xff",)
        )
        connection.commit()
    with pytest.raises(StoreError, match="is damaged"):
        Store.open(str(finished))
