"""Fixtures that every test may use, and what of the tests a run takes."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from alembic.script import ScriptDirectory

from autotuner.devices.cpu.toolchain import CpuToolchain
from autotuner.store import Store
from autotuner.store.database import Database
from autotuner.values import config
from tests.helpers import sample, stores, timed
from tests.helpers.recorded import CALIBRATION, study_record
from tests.helpers.recorder import ALONE, Recorder

CHECK_FILE = Database._check_file

# What a run takes ---------------------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    today = datetime.now(UTC).date().isoformat()
    group = parser.getgroup("autotuner")
    group.addoption("--sample", default=today, help=f"seed of the rotating sample; {sample.ALL} takes all of it")
    group.addoption("--builds", type=Path, help="keep builds and references in this folder, so that runs share them")
    group.addoption("--record", type=Path, help="write what became of each test to this file")


def pytest_configure(config: pytest.Config) -> None:
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_IGN:  # as nohup has it; what the tests start would inherit that
            signal.signal(number, signal.default_int_handler)
    record = config.getoption("--record")
    if record is not None and "PYTEST_XDIST_WORKER" not in os.environ:
        config.pluginmanager.register(Recorder(record))


def pytest_report_header(config: pytest.Config) -> str:
    return f"rotating sample: --sample {config.getoption('--sample')}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = {*sample.left_out(items, config.getoption("--sample")), *sample.without_gpu(items)}
    config.hook.pytest_deselected(items=[*left_out])
    items[:] = [item for item in items if item not in left_out]
    if hasattr(config, "workeroutput"):  # of pytest-xdist, for the run that follows
        config.workeroutput[ALONE] = [item.nodeid for item in items if item.get_closest_marker("alone") is not None]


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    return timed.protocol(item, nextitem)


# Fixtures -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[Path]:
    """Builds and references of the tests, apart from the user's own: one folder for all processes of a run, as an entry
    of the cache appears by one rename."""
    base = tmp_path_factory.getbasetemp()
    here = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cache"
    folder: Path = pytestconfig.getoption("--builds") or here
    folder.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(config.CACHE, str(folder.absolute()))
        yield folder.absolute()


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """torch on one thread where the tests themselves compute: where something else uses a CPU too, a small step on
    several threads takes many times as long. What judges and measures says for itself how many it has."""
    if "torch" in sys.modules:  # tests that need it not do not wait for it
        sys.modules["torch"].set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def migrations_read_once() -> Iterator[None]:
    """Every test that opens a store needs them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ScriptDirectory, "from_config", stores.scripts_read_once())
        yield


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """The file of a store without anything, made when it is first asked for."""

    @functools.cache
    def made() -> Path:
        path = tmp_path_factory.mktemp("empty") / "studies.db"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Database, "_check_file", staticmethod(CHECK_FILE))
            stores.write_empty(path)
        return path

    return made


@pytest.fixture(autouse=True)
def new_stores_are_copies(monkeypatch: pytest.MonkeyPatch, empty_store: Callable[[], Path]) -> None:
    """A thousand tests make a store, whose tables take 20 times as long to make as to copy. Those of `tests/store` make
    them, as does whatever is another process."""
    monkeypatch.setattr(Database, "_check_file", staticmethod(stores.copied_first(CHECK_FILE, empty_store)))


@pytest.fixture(scope="session")
def toolchain() -> CpuToolchain:
    """The machine's C++ compiler."""
    return CpuToolchain.discover()


@pytest.fixture(scope="session")
def kernel_root() -> Path:
    """The kernel families made for tests."""
    return Path(__file__).parent / "kernels"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB."""
    place = tmp_path / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    if os.geteuid() != 0 or shutil.which("mount") is None or subprocess.run(command, check=False).returncode:
        pytest.skip("a small file system can only be mounted by root")
    yield place
    subprocess.run(["umount", str(place)], check=True)


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
