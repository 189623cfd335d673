"""A made-up store, and an application that serves it."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from autotuner.jobs import queue
from autotuner.store import Store, sweeps
from autotuner.tuning.workbench import load_space
from benchmarks.service.made_up import PROBLEMS, SPACE, spread_times, write
from tests.helpers.serving import serving

TOKEN = "a-token-of-the-tests"


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one study of 80 trials."""
    path = tmp_path_factory.mktemp("made") / "studies.db"
    with Store.open(str(path)) as store:
        name = write(store, 80)
    spread_times(path, name)
    return path


@pytest.fixture(scope="session")
def queued(made: Path, study: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with a sweep of that study, number 1, and a group of three, of which number 2 has begun."""
    path = Path(shutil.copy(made, tmp_path_factory.mktemp("queued") / "studies.db"))
    with Store.open(str(path)) as store:
        begun = write(store, 6, finals=False, problems=PROBLEMS[1:2])
        whole = queue.request_for(load_space(SPACE, problems=PROBLEMS), trials=100)
        several = [queue.request_for(load_space(SPACE, problems=[each]), trials=30) for each in PROBLEMS[1:4]]
        for requests, of in (([whole], study), (several, begun)):
            number = queue.submit(store, *requests)[0][0].id
            assert sweeps.claim(store, number, f"sweep {number}") is not None
            sweeps.work(store, number, 60.0, of)
            sweeps.note(store, number, "search", f"study {of}", {})
    return path


@pytest.fixture(scope="session")
def client(made: Path) -> Iterator[TestClient]:
    """A reader of the store, which nobody can change."""
    with serving(made) as found:
        yield found


@pytest.fixture(scope="session")
def study(client: TestClient) -> str:
    """The study's name."""
    return str(client.get("/api/v1/studies").json()["studies"][0]["name"])


@pytest.fixture(scope="session")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store without anything: its tables take longer to make than to copy."""
    path = tmp_path_factory.mktemp("empty") / "studies.db"
    with Store.open(str(path)):
        pass
    return path


@pytest.fixture
def writable(tmp_path: Path, empty: Path) -> Iterator[TestClient]:
    """The server of an empty store, which those with the token can change."""
    shutil.copy(empty, tmp_path / "studies.db")
    with serving(tmp_path / "studies.db", token=TOKEN) as found:
        yield found


@pytest.fixture
def shown() -> dict[str, str]:
    """The token, as a program shows it."""
    return {"Authorization": f"Bearer {TOKEN}"}
