"""The study store on real SQLite files: what is recorded, what is refused, and what survives a kill."""

from __future__ import annotations

import math
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import optuna
import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from autotuner.errors import DiskFullError, StoreError
from autotuner.outcome import (
    REQUIRED_CHECKS,
    Artifact,
    Calibration,
    CheckResult,
    Device,
    Fault,
    GateReport,
    Interval,
    Measurement,
    Outcome,
    Timing,
    Verdict,
)
from autotuner.problem import Problem
from autotuner.store import Store, StudyRecord, database, lease, migrations, queries
from autotuner.store.tables import Base, LeaseRow
from autotuner.variant import Variant, digest_of

PROBLEM = Problem(batch=1, heads=8, seq_q=512, seq_k=512, head_dim=64, dtype="float32")
CALIBRATION = Calibration(baselines=("flash",), timings=(), references=())


def variant(tile: int) -> Variant:
    return Variant(family="sdpa", backend="cpu", impl="scalar", parameters={"BLOCK_M": tile})


def artifact(tile: int, program: str | None = None) -> Artifact:
    digest = digest_of(["artifact", tile])
    return Artifact(
        variant=variant(tile),
        dtype="float32",
        head_dim=64,
        causal=False,
        digest=digest,
        name=f"sdpa_scalar_{digest[:12]}",
        path=f"/nowhere/{tile}.so",
        library_sha256=digest_of(["library", tile]),
        program_hash=program or digest_of(["program", tile]),
        macros={},
        compiler="g++ 13",
        flags=("-O3",),
        architecture="x86-64-v4",
        resources={},
        build_seconds=1.0,
    )


def passed_gate(tile: int) -> GateReport:
    checks = tuple(CheckResult(code=code, status="pass", seconds=0.1) for code in REQUIRED_CHECKS)
    return GateReport(artifact=artifact(tile).digest, checks=checks)


def measurement(microseconds: float, baseline: float = 100.0, *, censored: bool = False) -> Measurement:
    log = math.log(microseconds / baseline)
    timing = Timing(
        problem=PROBLEM,
        baseline="flash",
        variant_us=(microseconds * 0.99, microseconds, microseconds * 1.01),
        baseline_us=(baseline * 1.01, baseline, baseline * 0.99),
        log_ratio=Interval(low=log - 0.02, median=log, high=log + 0.02),
        calls=(10, 10),
    )
    return Measurement(timings=(timing,), objective=log, cache="cold", censored=censored)


def measured(tile: int, microseconds: float, program: str | None = None) -> Outcome:
    return Outcome(
        variant=variant(tile),
        verdict=Verdict.MEASURED,
        artifact=artifact(tile, program),
        gate=passed_gate(tile),
        measurement=measurement(microseconds),
        seconds={"build": 1.5, "check": 2.0, "measure": 0.5},
    )


def raced_out(tile: int, microseconds: float) -> Outcome:
    changes = {"verdict": Verdict.RACED_OUT, "measurement": measurement(microseconds, censored=True)}
    return measured(tile, microseconds).model_copy(update=changes)


def deduplicated(tile: int, original: Outcome) -> Outcome:
    assert original.artifact is not None
    return Outcome(
        variant=variant(tile),
        verdict=Verdict.DEDUPLICATED,
        artifact=artifact(tile, original.artifact.program_hash),
        measurement=original.measurement,
        original=original.artifact.digest,
    )


def rejected(tile: int, verdict: Verdict = Verdict.INCORRECT, code: str = "G2.T1") -> Outcome:
    fault = Fault(verdict=verdict, code=code, detail="max error 0.5", case="Q3 2x3x509x509 randn")
    return Outcome(variant=variant(tile), verdict=verdict, artifact=artifact(tile), fault=fault)


def study_record(name: str = "scalar-abc", space_digest: str = "d" * 64) -> StudyRecord:
    return StudyRecord(
        name=name,
        space_name="scalar",
        space_digest=space_digest,
        space_document='{"name": "scalar"}',
        problems=(PROBLEM,),
        device=Device(backend="cpu", name="A CPU", facts={"CORES": 2, "AVX512": True}, environment={"torch": "2.11"}),
        cache="cold",
        sampler="evolution",
        seed=2**40,
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "studies.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with Store.open(str(path)) as opened:
        opened.ensure_study(study_record())
        yield opened


@pytest.fixture
def session(store: Store) -> int:
    return store.start_session("scalar-abc", CALIBRATION, {"torch": "2.11"})


def record_all(store: Store, session: int, outcomes: list[Outcome]) -> None:
    for number, outcome in enumerate(outcomes):
        store.record("scalar-abc", session, number, outcome)


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


# Revoking -------------------------------------------------------------------------------------------------------


def test_a_revoked_trial_loses_its_latency_everywhere(store: Store, session: int) -> None:
    record_all(store, session, [measured(16, 50.0, program="p"), measured(32, 80.0)])
    assert store.revoke("scalar-abc", 0, "racecheck found a race") == (0,)
    assert [entry.number for entry in queries.leaderboard(store, "scalar-abc")] == [1]
    best = queries.best(store, "scalar-abc")
    assert best is not None
    assert best.entry.number == 1
    found = store.find("scalar-abc", variant(16).digest)
    assert found is not None
    assert (found.verdict, found.measurement) == (Verdict.INCORRECT, None)
    assert found.fault is not None
    assert found.fault.detail == "racecheck found a race"
    assert math.isinf(store.judged_numbers("scalar-abc")[0].objective)
    assert store.find_program("scalar-abc", "p") is None
    record = queries.trial(store, "scalar-abc", 0)
    assert record.revoked_reason == "racecheck found a race"
    assert record.revoked_at is not None
    assert record.outcome == measured(16, 50.0, program="p")
    assert queries.summary(store, "scalar-abc").revoked == 1


def test_revoking_takes_the_duplicates_along_and_keeps_the_first_reason(store: Store, session: int) -> None:
    original = measured(16, 50.0, program="p")
    record_all(store, session, [original, deduplicated(32, original), measured(64, 80.0)])
    assert store.revoke("scalar-abc", 1, "wrong") == (0, 1)
    assert store.revoke("scalar-abc", 0, "again") == ()
    assert queries.trial(store, "scalar-abc", 0).revoked_reason == "same program as trial 1: wrong"
    store.record("scalar-abc", session, 3, deduplicated(128, original))
    assert [entry.number for entry in queries.leaderboard(store, "scalar-abc")] == [2]


# Queries --------------------------------------------------------------------------------------------------------


def test_the_leaderboard_is_sorted_and_holds_only_what_passed(store: Store, session: int) -> None:
    outcomes = [measured(1, 80.0), rejected(2), measured(4, 50.0), raced_out(8, 200.0), measured(16, 80.0)]
    record_all(store, session, [*outcomes, rejected(32, Verdict.INFRA_ERROR)])
    entries = queries.leaderboard(store, "scalar-abc", limit=10)
    assert [(e.rank, e.number) for e in entries] == [(1, 2), (2, 0), (3, 4), (4, 3)]
    assert [e.censored for e in entries] == [False, False, False, True]
    top = entries[0]
    assert top.variant == variant(4)
    assert (top.median_us, top.baseline_us) == pytest.approx((50.0, 100.0))
    expected = (2 * math.exp(-0.02), 2.0, 2 * math.exp(0.02))
    assert (top.speedup.low, top.speedup.median, top.speedup.high) == pytest.approx(expected)
    assert len(queries.leaderboard(store, "scalar-abc", limit=2)) == 2


def test_several_problems_give_geometric_means(store: Store, session: int) -> None:
    timings = measurement(50.0).timings + measurement(200.0).timings
    both = Measurement(timings=timings, objective=0.0, cache="cold")
    store.record("scalar-abc", session, 0, measured(16, 1.0).model_copy(update={"measurement": both}))
    (entry,) = queries.leaderboard(store, "scalar-abc")
    assert (entry.median_us, entry.baseline_us, entry.speedup.median) == pytest.approx((100.0, 100.0, 1.0))


def test_the_best_is_never_an_estimate(store: Store, session: int) -> None:
    record_all(store, session, [raced_out(8, 60.0)])
    assert queries.best(store, "scalar-abc") is None
    store.record("scalar-abc", session, 1, measured(16, 80.0))
    best = queries.best(store, "scalar-abc")
    assert best is not None
    assert (best.entry.number, best.outcome) == (1, measured(16, 80.0))
    assert best.record.session.calibration == CALIBRATION


def test_a_summary_counts_and_spreads(store: Store, session: int) -> None:
    faults = [rejected(32), rejected(64), rejected(128, Verdict.CRASHED, "process.signal")]
    record_all(store, session, [measured(1, 50.0), measured(2, 80.0), measured(4, 100.0), raced_out(8, 300.0), *faults])
    found = queries.summary(store, "scalar-abc")
    assert found.by_verdict == {
        Verdict.MEASURED: 3,
        Verdict.RACED_OUT: 1,
        Verdict.INCORRECT: 2,
        Verdict.CRASHED: 1,
    }
    assert found.by_fault == {"G2.T1": 2, "process.signal": 1}
    assert (found.judged, found.rejected, found.best_number, found.running) == (7, 3, 0, False)
    assert found.best_speedup == pytest.approx(2.0)
    assert found.spread is not None
    assert (found.spread.best_us, found.spread.median_us, found.spread.worst_us) == pytest.approx((50.0, 90.0, 300.0))
    assert found.spread.worst_to_best == pytest.approx(6.0)


def test_an_empty_study_has_no_best(store: Store) -> None:
    found = queries.summary(store, "scalar-abc")
    assert (found.judged, found.best_number, found.best_speedup, found.spread) == (0, None, None, None)
    assert queries.leaderboard(store, "scalar-abc") == ()


def test_a_study_runs_while_its_driver_lives(store: Store) -> None:
    with store.lease():
        number = store.start_session("scalar-abc", CALIBRATION, {})
        assert queries.summary(store, "scalar-abc").running
        store.finish_session(number)
        assert not queries.summary(store, "scalar-abc").running


def test_studies_are_named_by_prefix_or_last_activity(store: Store) -> None:
    store.ensure_study(study_record("scalar-abd"))
    store.ensure_study(study_record("simd-xyz"))
    store.start_session("scalar-abd", CALIBRATION, {})
    assert queries.resolve_study(store) == "scalar-abd"
    assert queries.studies(store)[0].name == "scalar-abd"
    assert queries.resolve_study(store, "simd") == "simd-xyz"
    assert queries.resolve_study(store, "scalar-abc") == "scalar-abc"
    with pytest.raises(StoreError, match="scalar-abd, scalar-abc"):
        queries.resolve_study(store, "scalar")
    with pytest.raises(StoreError, match="near it: simd-xyz"):
        queries.resolve_study(store, "simd-xzy")


def test_a_store_without_studies_says_so(path: Path) -> None:
    with Store.open(str(path)) as store, pytest.raises(StoreError, match="no studies yet"):
        queries.resolve_study(store)


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
    children = [subprocess.Popen([sys.executable, "-c", code], cwd=ROOT) for _ in range(2)]
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


# The lease, and being killed ------------------------------------------------------------------------------------

ROOT = Path(__file__).resolve().parent.parent


def child(code: str) -> subprocess.Popen[str]:
    prelude = f"import sys; sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / 'tests')!r}]\n"
    text = prelude + textwrap.dedent(code)
    return subprocess.Popen([sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def say(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def kill(process: subprocess.Popen[str], *, reap: bool = True) -> None:
    process.send_signal(signal.SIGKILL)
    if reap:
        process.communicate()


def holder(path: Path) -> subprocess.Popen[str]:
    return child(f"""
        from autotuner.store import Store
        with Store.open({str(path)!r}) as store, store.lease():
            print("held", flush=True)
            sys.stdin.read()
    """)


def test_a_living_driver_is_named_and_a_killed_one_is_followed(store: Store, path: Path) -> None:
    other = holder(path)
    assert say(other) == "held"
    with pytest.raises(StoreError, match=rf"process {other.pid} on .* since 20\d\d-"), store.lease():
        pass
    kill(other, reap=False)
    deadline = threading.Event()
    while lease.start_of(other.pid) is not None:  # a zombie, not reaped yet, counts as gone
        deadline.wait(0.01)
    with store.lease() as held:
        held.beat()
    other.communicate()


def test_a_lease_is_given_back(store: Store) -> None:
    for _ in range(2):
        with store.lease() as held:
            held.beat()
            with pytest.raises(StoreError, match=f"process {os.getpid()}"), store.lease():
                pass
    with pytest.raises(RuntimeError, match="mine"), store.lease():
        raise RuntimeError("mine")
    with store.lease():
        pass


def test_only_one_of_two_gets_the_lease(path: Path) -> None:
    Store.open(str(path)).close()
    code = f"""
        from autotuner.errors import StoreError
        from autotuner.store import Store
        store = Store.open({str(path)!r})
        print("ready", flush=True)
        sys.stdin.readline()
        try:
            with store.lease():
                print("held", flush=True)
                sys.stdin.readline()
        except StoreError:
            print("refused", flush=True)
    """
    children = [child(code) for _ in range(2)]
    assert [say(each) for each in children] == ["ready"] * 2
    for each in children:
        assert each.stdin is not None
        each.stdin.write("go\n")
        each.stdin.flush()
    assert sorted(say(each) for each in children) == ["held", "refused"]
    for each in children:
        each.communicate()


def change_lease(store: Store, **changes: object) -> None:
    with store.database.writing() as session:
        row = session.get_one(LeaseRow, lease.DRIVER)
        for name, value in changes.items():
            setattr(row, name, value)


@pytest.mark.parametrize(
    ("changes", "taken"),
    [
        ({"pid_started": "1"}, True),
        ({"boot_id": "another boot"}, True),
        ({"pid": 2**22 + 5}, True),
        ({"host": "elsewhere"}, False),
        ({"host": "elsewhere", "heartbeat_at": datetime.now(UTC) - timedelta(seconds=300)}, True),
        ({"namespace": "another container"}, False),
        ({"heartbeat_at": datetime.now(UTC) - timedelta(seconds=300)}, False),
    ],
)
def test_a_lease_is_taken_over_only_from_the_dead(store: Store, changes: dict[str, object], taken: bool) -> None:
    with store.lease() as first:
        change_lease(store, **changes)
        if not taken:
            with pytest.raises(StoreError, match="is being driven"), store.lease():
                pass
            return
        with store.lease():
            pass
        with pytest.raises(StoreError, match="stop this driver"):
            first.beat()


def test_a_process_is_told_from_a_later_one_with_its_number() -> None:
    assert lease.start_of(os.getpid()) == lease.Process.current().pid_started
    assert lease.start_of(2**22 + 5) is None


def test_a_kill_in_the_middle_of_records_leaves_only_whole_trials(path: Path) -> None:
    with Store.open(str(path)) as store:
        store.ensure_study(study_record())
    driver = child(f"""
        import test_store as t
        with t.Store.open({str(path)!r}) as store, store.lease():
            session = store.start_session("scalar-abc", t.CALIBRATION, {{}})
            for number in range(100_000):
                store.record("scalar-abc", session, number, t.measured(number + 1, 50.0 + number))
                print(number, flush=True)
    """)
    assert driver.stdout is not None
    confirmed = -1
    while confirmed < 40:
        confirmed = int(say(driver))
    driver.send_signal(signal.SIGKILL)
    rest, _ = driver.communicate()
    whole = [int(line) for line in rest.split("\n")[:-1]]
    confirmed = max([confirmed, *whole])
    with Store.open(str(path), create=False) as after, after.lease():
        numbers = list(after.judged_numbers("scalar-abc"))
        assert numbers == list(range(len(numbers)))
        assert len(numbers) in (confirmed + 1, confirmed + 2)
        with after.database.reading() as session:
            raw = session.connection().exec_driver_sql("SELECT count(*) FROM at_block GROUP BY trial_id").fetchall()
            assert [count for (count,) in raw] == [3] * len(numbers)
            assert session.connection().exec_driver_sql("PRAGMA integrity_check").scalar() == "ok"


def test_readers_do_not_wait_for_a_writer(store: Store, session: int, path: Path) -> None:
    store.record("scalar-abc", session, 0, measured(16, 80.0))
    with Store.open(str(path), create=False) as reader, store.database.writing():
        assert queries.summary(reader, "scalar-abc").judged == 1
