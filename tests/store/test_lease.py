"""One driver at a time, and what survives a kill of it: one suite for SQLite and PostgreSQL."""

import os
import signal
import subprocess
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from autotuner.store import Store, lease
from autotuner.store.tables import LeaseRow
from autotuner.tuning.finals import standings
from autotuner.values.errors import StoreError
from tests.helpers.processes import child, said
from tests.helpers.recorded import measured, study_record
from tests.helpers.stores import transaction

# The lease, and being killed ------------------------------------------------------------------------------------


@pytest.fixture
def store(opened: Store) -> Store:
    """One with a study, on either engine."""
    opened.ensure_study(study_record())
    return opened


def kill(process: subprocess.Popen[str], *, reap: bool = True) -> None:
    process.send_signal(signal.SIGKILL)
    if reap:
        process.communicate()


def holder(place: str) -> subprocess.Popen[str]:
    return child(f"""
        from autotuner.store import Store
        with Store.open({place!r}) as store, store.lease("scalar-abc"):
            print("held", flush=True)
            sys.stdin.read()
    """)


@pytest.mark.timed
def test_a_living_driver_is_named_and_a_killed_one_is_followed(store: Store, place: str) -> None:
    other = holder(place)
    assert said(other) == "held"
    with pytest.raises(StoreError, match=rf"process {other.pid} on .* since 20\d\d-"), store.lease("scalar-abc"):
        pass
    kill(other, reap=False)
    deadline = threading.Event()
    while lease.start_of(other.pid) is not None:  # a zombie, not reaped yet, counts as gone
        deadline.wait(0.01)
    with store.lease("scalar-abc") as held:
        held.beat()
    other.communicate()


def test_a_lease_is_given_back(store: Store) -> None:
    for _ in range(2):
        with store.lease("scalar-abc") as held:
            held.beat()
            with pytest.raises(StoreError, match=f"process {os.getpid()}"), store.lease("scalar-abc"):
                pass
    with pytest.raises(RuntimeError, match="mine"), store.lease("scalar-abc"):
        raise RuntimeError("mine")
    with store.lease("scalar-abc"):
        pass


def lease_row(store: Store) -> dict[str, object]:
    """What it says now."""
    with transaction(store) as session:
        row = session.get_one(LeaseRow, "study/scalar-abc")
        return {column.key: getattr(row, column.key) for column in LeaseRow.__table__.columns}


def change_lease(store: Store, **changes: object) -> None:
    with transaction(store, writes=True) as session:
        row = session.get_one(LeaseRow, "study/scalar-abc")
        for name, value in changes.items():
            setattr(row, name, value)


MACHINE = "0123456789abcdef0123456789abcdef\n"
REBOOTED: dict[str, object] = {"boot_id": "another boot"}
LONG_AGO: dict[str, object] = {"heartbeat_at": datetime.now(UTC) - timedelta(seconds=300)}
DEAD: list[dict[str, object]] = [
    {"pid_started": "1"},
    REBOOTED,
    {**REBOOTED, "machine": "", **LONG_AGO},
    {"pid": 2**22 + 5},
    {"host": "elsewhere", **LONG_AGO},
]
ALIVE: list[tuple[str | None, dict[str, object]]] = [
    (MACHINE, {**REBOOTED, "machine": "another machine of that name"}),
    (MACHINE, {**REBOOTED, "machine": ""}),
    (MACHINE, {"host": "elsewhere"}),
    (MACHINE, {"namespace": "another container"}),
    (MACHINE, LONG_AGO),
    *((content, REBOOTED) for content in (None, "", "uninitialized\n")),
]
"""What a machine's file holds, and what the lease says."""


@pytest.fixture
def machine_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(lease, "MACHINE_ID", str(tmp_path / "machine-id"))
    return tmp_path / "machine-id"


def test_a_lease_is_taken_over_from_the_dead(store: Store, machine_id: Path) -> None:
    machine_id.write_text(MACHINE)
    for changes in DEAD:
        with store.lease("scalar-abc") as first:
            change_lease(store, **changes)
            with store.lease("scalar-abc"):
                pass
            with pytest.raises(StoreError, match="stop this driver"):
                first.beat()


def test_a_lease_is_not_taken_over_from_the_living(store: Store, machine_id: Path) -> None:
    """Nor from a machine without an id, which is never taken for one that was booted since."""
    for content, changes in ALIVE:
        machine_id.unlink(missing_ok=True)
        if content is not None:
            machine_id.write_text(content)
        with store.lease("scalar-abc"):
            held = lease_row(store)
            change_lease(store, **changes)
            with pytest.raises(StoreError, match="is being driven"), store.lease("scalar-abc"):
                pass
            change_lease(store, **held)


def test_a_process_is_told_from_a_later_one_with_its_number() -> None:
    assert lease.start_of(os.getpid()) == lease.HoldingProcess.current().pid_started
    assert lease.start_of(2**22 + 5) is None


def test_a_kill_in_the_middle_of_records_leaves_only_whole_trials(place: str, store: Store) -> None:
    driver = child(f"""
        from tests.helpers import recorded as t
        with t.Store.open({place!r}) as store, store.lease("scalar-abc"):
            session = store.start_session("scalar-abc", t.CALIBRATION, {{}})
            for number in range(100_000):
                store.record("scalar-abc", session, number, t.measured(number + 1, 50.0 + number))
                print(number, flush=True)
    """)
    assert driver.stdout is not None
    confirmed = -1
    while confirmed < 40:
        confirmed = int(said(driver))
    driver.send_signal(signal.SIGKILL)
    rest = driver.stdout.read()  # `communicate` leaves out what was read ahead
    driver.communicate()
    whole = [int(line) for line in rest.split("\n")[:-1]]
    confirmed = max([confirmed, *whole])
    with Store.open(place, create=False) as after, after.lease("scalar-abc"):
        numbers = list(dict(after.outcomes("scalar-abc")))
        assert numbers == list(range(len(numbers)))
        assert len(numbers) in (confirmed + 1, confirmed + 2)
        with transaction(after) as session:
            raw = session.connection().exec_driver_sql("SELECT count(*) FROM at_block GROUP BY trial_id").fetchall()
            assert [count for (count,) in raw] == [3] * len(numbers)
            if after.database.is_sqlite:
                assert session.connection().exec_driver_sql("PRAGMA integrity_check").scalar() == "ok"


@pytest.mark.timed
def test_readers_do_not_wait_for_a_writer(store: Store, session: int, place: str) -> None:
    store.record("scalar-abc", session, 0, measured(16, 80.0))
    with Store.open(place, create=False) as reader, transaction(store, writes=True):
        assert standings.summary(reader, "scalar-abc").judged == 1
