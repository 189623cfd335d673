"""Fixtures that every test may use."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotuner.devices.toolchain import Toolchain
from autotuner.store import Store
from autotuner.values import config
from tests.helpers.recorded import CALIBRATION, study_record


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Builds and references of the tests, apart from the user's own: one folder for all processes of a run, as an entry
    of the cache appears by one rename."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cache"
    folder.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(config.CACHE, str(folder))
        yield folder


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """torch on one thread where the tests themselves compute: where something else uses a CPU too, a small step on
    several threads takes many times as long. What judges and measures says for itself how many it has."""
    if "torch" in sys.modules:  # tests that need it not do not wait for it
        sys.modules["torch"].set_num_threads(1)


@pytest.fixture(scope="session")
def toolchain() -> Toolchain:
    """The machine's C++ compiler."""
    return Toolchain.discover()


@pytest.fixture(scope="session")
def kernel_root() -> Path:
    """The kernel families made for tests."""
    return Path(__file__).parent / "kernels"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store's file."""
    return tmp_path / "studies.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    """A store with one study."""
    with Store.open(str(path)) as opened:
        opened.ensure_study(study_record())
        yield opened


@pytest.fixture
def session(store: Store) -> int:
    """A session of that study."""
    return store.start_session("scalar-abc", CALIBRATION, {"torch": "2.11"})
