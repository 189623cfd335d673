"""A store that is locked, full or gone while a driver runs: no measurement is thrown away."""

import contextlib
import itertools
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete

from autotuner.jobs.signals import Stopping, StopSignal
from autotuner.jobs.worker import open_patiently
from autotuner.store import Store, database, patience, queries
from autotuner.store.database import Database
from autotuner.store.store import Unwritten
from autotuner.store.tables import LeaseRow
from autotuner.tuning.run.driver import Budget, Event, Judged
from autotuner.values.errors import LeaseLostError, StoreUnavailableError
from tests.helpers import simulated
from tests.helpers.driven import driver
from tests.helpers.postgresql import Server
from tests.helpers.recorded import CALIBRATION, measured, study_record
from tests.helpers.stores import locked, transaction

TRIALS = 12


@pytest.fixture(autouse=True)
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that is locked, full or gone is tried again soon."""
    monkeypatch.setattr(database, "TURN_MS", 50)
    monkeypatch.setattr(patience, "PAUSE_S", 0.05)


def judged(store: Store, name: str) -> list[tuple[int, str, str]]:
    found = dict(store.outcomes(name))
    return [(number, outcome.variant.digest, str(outcome.verdict)) for number, outcome in found.items()]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[int, str, str]]:
    """What a driver judges that nothing disturbs."""
    with Store.open(str(tmp_path_factory.mktemp("calm") / "studies.db")) as store:
        sweep = driver(store, simulated.backend())
        sweep.run(Budget(trials=TRIALS))
        return judged(store, sweep.name)


def after(count: int, do: Callable[[], None]) -> Callable[[Event], None]:
    """Does something once `count` trials are judged."""

    def hear(heard: Event) -> None:
        if isinstance(heard, Judged) and heard.judged == count:
            do()

    return hear


def hold_for_some_attempts(store: Store, path: Path, attempts: int) -> Callable[[], None]:
    """Locks the store until it was tried so often in vain."""
    enough = threading.Event()
    tried = []

    def hear() -> None:
        tried.append("in vain")
        if len(tried) >= attempts:
            enough.set()

    def hold(held: threading.Event) -> None:
        with locked(path):
            held.set()
            enough.wait(120)

    def begin() -> None:
        held = threading.Event()
        threading.Thread(target=hold, args=(held,), daemon=True).start()
        held.wait(60)

    store.database.patience.pulse = hear
    return begin


@pytest.mark.slow
def test_a_locked_store_is_waited_for(path: Path, undisturbed: list[tuple[int, str, str]]) -> None:
    with Store.open(str(path)) as store:
        store.database.wait_s, store.database.patience.seconds = 0.1, float("inf")
        sweep = driver(store, simulated.backend(), after(5, hold_for_some_attempts(store, path, 2)))
        sweep.run(Budget(trials=TRIALS))
        assert judged(store, sweep.name) == undisturbed
        assert list(Unwritten.of(store.label, sweep.name)) == []


def record_in_vain(store: Store, session: int, path: Path, number: int = 0) -> None:
    """The outcome of a variant that is judged while the store is locked."""
    store.database.wait_s = 0.1
    with pytest.raises(StoreUnavailableError, match="locked"), locked(path):
        store.record("scalar-abc", session, number, measured(16 + number, 80.0))


def test_a_kept_outcome_stays_kept_until_the_store_takes_it(store: Store, session: int, path: Path) -> None:
    """The next driver finds the store locked, too; then another process has the study. What was judged anew meanwhile
    is dropped."""
    for number in range(2):
        record_in_vain(store, session, path, number)
    with pytest.raises(StoreUnavailableError), locked(path):
        store.record_unwritten("scalar-abc")
    with store.lease("scalar-abc"):
        with transaction(store, writes=True) as other:
            other.execute(delete(LeaseRow))
        with pytest.raises(LeaseLostError):
            store.record_unwritten("scalar-abc")
    assert len(list(Unwritten.of(store.label, "scalar-abc"))) == 2
    store.record("scalar-abc", session, 1, measured(18, 80.0))
    assert store.record_unwritten("scalar-abc") == 1
    assert dict(store.outcomes("scalar-abc")) == {0: measured(16, 80.0), 1: measured(18, 80.0)}
    assert list(Unwritten.of(store.label, "scalar-abc")) == []


@pytest.mark.parametrize("sessions", [0, 1])
def test_an_outcome_of_another_store_is_dropped(store: Store, session: int, path: Path, sessions: int) -> None:
    """The file was deleted and the same search begun again: the study has its name, perhaps a session its number."""
    record_in_vain(store, session, path)
    store.close()
    for each in path.parent.glob("studies.db*"):
        each.unlink()
    with Store.open(str(path)) as anew:
        anew.ensure_study(study_record())
        for _ in range(sessions):
            assert anew.start_session("scalar-abc", CALIBRATION, {}) == session
        assert anew.record_unwritten("scalar-abc") == 0
        assert dict(anew.outcomes("scalar-abc")) == {}
        assert list(Unwritten.of(anew.label, "scalar-abc")) == []


def test_a_kept_outcome_is_recorded_with_patience(store: Store, session: int, path: Path) -> None:
    record_in_vain(store, session, path)
    store.database.patience.seconds = float("inf")
    hold_for_some_attempts(store, path, 1)()
    assert store.record_unwritten("scalar-abc") == 1
    assert dict(store.outcomes("scalar-abc")) == {0: measured(16, 80.0)}


def test_a_small_disk_that_is_full_is_waited_for(small_disk: Path, undisturbed: list[tuple[int, str, str]]) -> None:
    """A real one, with the store on it, until somebody makes space."""
    subprocess.run(["mount", "-o", "remount,size=16m", str(small_disk)], check=True)
    ballast, tried = small_disk / "ballast", []

    def fill() -> None:
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
            while file.write(b"x" * 4096):
                pass

    def hear(line: str) -> None:
        tried.append(line)
        ballast.unlink(missing_ok=True)

    with Store.open(str(small_disk / "studies.db")) as store:
        store.database.patience.seconds, store.database.patience.say = float("inf"), hear
        sweep = driver(store, simulated.backend(), after(5, fill))
        sweep.run(Budget(trials=TRIALS))
        assert "the disk is full" in tried[0]
        assert judged(store, sweep.name) == undisturbed
        assert list(Unwritten.of(store.label, sweep.name)) == []


def stopping(server: Server, call: int) -> Callable[[Database, Callable[[], Any]], Any]:
    """`Database.attempt` before whose call of that number the server is stopped."""
    attempt, calls = Database.attempt, itertools.count(1)

    def struck(database: Database, each: Callable[[], Any], *failed: Callable[[], None]) -> Any:
        if next(calls) == call:
            server.stop()
        return attempt(database, each, *failed)

    return struck


@contextlib.contextmanager
def waited_for(server: Server, patient: patience.Patience) -> Iterator[None]:
    """The server starts once it is said to be gone. A line is said when it goes, and one when it is back."""
    said: list[str] = []

    def hear(line: str) -> None:
        said.append(line)
        if len(said) == 1:
            server.start()

    patient.seconds, patient.say = float("inf"), hear
    yield
    gone, back = said
    assert gone.startswith("keeps what it has and waits for the store: ")
    assert back.startswith("the store is back after ")


def test_a_server_that_is_not_there_yet_is_waited_for(server: Server) -> None:
    url, patient = server.url(), patience.Patience()
    server.stop()
    with waited_for(server, patient), Store.open(url, patience=patient) as store:
        assert queries.names(store) == ()


def test_a_signal_ends_the_wait_for_a_server_that_is_not_there(server: Server) -> None:
    url, stop = server.url(), StopSignal()
    server.stop()
    try:
        with pytest.raises(Stopping, match="SIGTERM"):
            open_patiently(url, lambda _: setattr(stop, "why", "SIGTERM"), stop, None)
    finally:
        server.start()


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(call, marks=[] if call in (2, 12, 24) else [pytest.mark.slow, pytest.mark.sampled(3)])
        for call in (*range(1, 30), 50)
    ],
)
def test_a_server_that_is_restarted_before_any_call_is_waited_for(
    server: Server, undisturbed: list[tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    """Of Optuna's storage, too, and on a new database."""
    with Store.open(server.url()) as store, waited_for(server, store.database.patience):
        monkeypatch.setattr(Database, "attempt", stopping(server, call))
        sweep = driver(store, simulated.backend())
        sweep.run(Budget(trials=TRIALS))
        assert judged(store, sweep.name) == undisturbed
