"""Fixtures that every test may use, and what of the tests a run takes."""

import functools
import gc
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import typer.main
import typer.testing
from alembic.script import ScriptDirectory

from autotuner.devices.cpu.toolchain import CpuToolchain
from autotuner.devices.cuda.architecture import architecture
from autotuner.devices.cuda.probe import CudaFacts, probe
from autotuner.devices.cuda.toolchain import CudaToolchain
from autotuner.devices.environment import usable_cpus
from autotuner.store import Store
from autotuner.store.database import Database
from autotuner.values import config
from autotuner.values.errors import ToolchainError
from tests.helpers import postgresql, stores, turns
from tests.helpers.recorded import CALIBRATION, study_record
from tests.helpers.turns import Turns

CHECK_FILE = Database._check_file

# What a run takes ---------------------------------------------------------------------------------------------------

TURNS = Turns(Path(__file__), Path(turns.__file__))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("autotuner").addoption("--all", action="store_true", help="every test of those marked `sampled`")


def pytest_configure(config: pytest.Config) -> None:
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_IGN:  # as nohup has it; what the tests start would inherit that
            signal.signal(number, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One more than there are CPUs, as tests wait: for a process to start or end, or for a deadline. Those of a GPU are
    fewer: each has it in turns with the others."""
    most = usable_cpus() + 1
    return min(most, turns.ON_A_GPU) if config.option.markexpr == "gpu" else most


def pytest_collection_finish() -> None:
    """What is imported and collected by now stays, a million objects: Python looks for garbage in what comes later, and
    less often. A tenth to a quarter of a process's time went there."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    sampled = [] if config.getoption("--all") else turns.left_out(items)
    left_out = {*sampled, *turns.without_gpu(items)}
    config.hook.pytest_deselected(items=[*left_out])
    items[:] = turns.in_order(item for item in items if item not in left_out)
    for item in items:
        if item.get_closest_marker("timed") is not None:
            item.add_marker(pytest.mark.flaky(reruns=turns.RERUNS))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    TURNS.begin(item)


def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    if call.excinfo is not None:
        item.stash[turns.FAILED] = call.excinfo.exconly()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How tests failed that were tried again: a fault of ours may lie behind a second try."""
    for report in terminalreporter.getreports("rerun"):
        said = getattr(getattr(report.longrepr, "reprcrash", None), "message", "")
        terminalreporter.write_line(f"TRIED AGAIN {report.nodeid}: {said.partition(chr(10))[0]}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> Iterator[None]:
    """The turn ends whatever a fixture's end raises: who waits to be alone would wait for ever."""
    try:
        yield
    finally:
        TURNS.end(nextitem)


# Fixtures -----------------------------------------------------------------------------------------------------------


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


@pytest.fixture(scope="session", autouse=True)
def others_use_the_gpu(pytestconfig: pytest.Config) -> Iterator[None]:
    """A launch in a test's own process has longer to end than a variant's, which is looked at again alone: up to
    ON_A_GPU processes have the GPU in turns, and one that ends with a kernel on it holds all others up."""
    with pytest.MonkeyPatch.context() as patch:
        if pytestconfig.option.markexpr == "gpu":
            patch.setattr("autotuner.devices.cuda.bench.HANG_S", 30.0)
        yield


@pytest.fixture(scope="session", autouse=True)
def migrations_read_once() -> Iterator[None]:
    """Every test that opens a store needs them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ScriptDirectory, "from_config", stores.scripts_read_once())
        yield


@pytest.fixture(scope="session", autouse=True)
def program_read_once() -> Iterator[None]:
    """What Typer makes of it takes longer than most commands that are given in a test's own process."""
    with pytest.MonkeyPatch.context() as patch:
        once = functools.cache(typer.main.get_command)
        patch.setattr(typer.main, "get_command", once)
        patch.setattr(typer.testing, "_get_command", once)
        yield


@pytest.fixture(autouse=True)
def modules_are_found_as_before() -> Iterator[None]:
    """What a test puts on the path, such as packages with entry points, is not there for the next one."""
    before = [*sys.path]
    yield
    sys.path[:] = before


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
def server() -> Iterator[postgresql.Server]:
    """A PostgreSQL server; where none is installed the test is skipped."""
    with postgresql.running() as found:
        yield found


@pytest.fixture(scope="session")
def toolchain() -> CpuToolchain:
    """The machine's C++ compiler."""
    return CpuToolchain.discover()


@pytest.fixture(scope="session")
def nvcc() -> CudaToolchain:
    """nvcc for sm_90; where there is none, what asks for it is skipped."""
    try:
        return CudaToolchain.discover(architecture("sm_90"))
    except ToolchainError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def device() -> CudaToolchain:
    """The toolchain for the GPU that is here."""
    found = probe()
    assert isinstance(found, CudaFacts), found
    return CudaToolchain.discover(architecture(f"sm_{found.sm}"))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB, where only its owner writes, as a cache wants it."""
    place = tmp_path / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m,mode=755", "tmpfs", str(place)]
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
