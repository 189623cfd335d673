"""What the cage keeps a variant from. The attempts are made in the process that runs variants, once a variant was
loaded there, by what a variant has too: the system calls."""

import json
import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from autotuner.devices import DEVICES
from autotuner.devices.cpu.toolchain import CpuToolchain
from autotuner.devices.kind import Cage
from autotuner.forge import landlock, seccomp
from autotuner.forge.build import require_cache
from autotuner.forge.family import Family
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.run import cage
from autotuner.run.cage import CageParts
from autotuner.run.local import LocalExecutor
from autotuner.tuning.workbench import choose_device, load_space
from autotuner.values import config
from autotuner.values.variant import Variant
from tests.helpers import preload
from tests.helpers.adversary import adversary, the_store_stays_shut, tried
from tests.helpers.conduct_driver import CONDITIONS, conduct
from tests.helpers.judging import KERNELS, cpu_judge, judged

pytestmark = [
    pytest.mark.timed,
    pytest.mark.skipif(not landlock.version() or seccomp.machine() is None, reason="this kernel has no such cage"),
]


@pytest.fixture(scope="module")
def executor() -> Iterator[LocalExecutor]:
    require_cache()
    with closing(
        LocalExecutor(adversary, preload.CPU, overlap=True, jobs_per_process=100, cage=CageParts.of(Cage()))
    ) as made:
        yield made


def test_the_store_cannot_be_read_or_written(executor: LocalExecutor, tmp_path: Path) -> None:
    the_store_stays_shut(executor, tmp_path)


def test_the_cache_can_be_read_and_not_written(executor: LocalExecutor) -> None:
    built = config.cache_dir() / "builds" / "a_build"
    built.write_bytes(b"code")
    assert tried(executor, "reads", built) == "b'code'"
    for what in ("writes", "appends", "removes"):
        assert tried(executor, what, built) == "EACCES"
    assert built.read_bytes() == b"code"
    built.unlink()


def test_its_own_folder_can_be_written(executor: LocalExecutor) -> None:
    assert tried(executor, "writes_scratch") == "4"


def test_there_is_no_network(executor: LocalExecutor) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert tried(executor, "connects", server.getsockname()[1]) == "EACCES"
    assert tried(executor, "listens") == "EACCES"


def test_no_other_program_of_the_machine_is_spoken_to(executor: LocalExecutor, tmp_path: Path) -> None:
    """One that starts containers, or services, does for who speaks to it what the cage keeps a variant from."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "daemon"))
        server.listen()
        assert tried(executor, "connects_within_the_machine", tmp_path / "daemon") == "EACCES"


OTHERS = ("traces", "reads_memory", "reads_environment", "reads_by_number", "limits_others", "signals")


def test_the_driver_cannot_be_touched(executor: LocalExecutor) -> None:
    for what in OTHERS:
        assert tried(executor, what, os.getpid()) in ("EPERM", "EACCES"), what


def test_nobody_else_can_be_touched(executor: LocalExecutor) -> None:
    others = ("shares_memory", "attaches_memory", "sends_messages", "counts_together")
    for what in ("signals_its_parent", "sets_the_clock", "hides_the_time_stamp", "mounts", "queues", *others):
        assert tried(executor, what) in ("EPERM", "EACCES"), what


USERS = 28
KINDS_OF_NAMESPACES = {
    "mounts": 17,
    "groups": 25,
    "names": 26,
    "messages": 27,
    "users": USERS,
    "processes": 29,
    "net": 30,
}
"""Their bits among the flags. One of users is given to anybody, and the others within one."""


def test_there_is_no_namespace_of_its_own(executor: LocalExecutor) -> None:
    users = 1 << USERS
    for kind, bit in KINDS_OF_NAMESPACES.items():
        assert tried(executor, "forks_into_a_namespace", users | 1 << bit) == "EPERM", kind
        assert tried(executor, "forks_into_a_namespace", 1 << bit) == "EPERM", kind
    assert tried(executor, "enters_a_namespace", users) == "EPERM"
    assert tried(executor, "forks_by_clone3", users) == "ENOSYS"


def test_threads_of_its_own_can_be_started_and_no_process(executor: LocalExecutor) -> None:
    assert tried(executor, "forks_into_a_namespace", 0) == "EPERM"
    assert tried(executor, "starts_processes") == "EPERM EPERM EPERM EPERM"
    assert tried(executor, "starts_threads") == f"{512**3}"


@pytest.mark.parametrize("what", [0, 1, 2])
def test_how_the_processor_speculates_stays_as_it_is(executor: LocalExecutor, what: int) -> None:
    """Without it stores are passed by, indirect branches foretold, and the first cache flushed, or not."""
    assert tried(executor, "controls_speculation", what) == "EPERM"


def test_memory_that_was_writable_does_not_become_code(executor: LocalExecutor) -> None:
    assert tried(executor, "makes_code") == "EPERM EPERM EPERM EPERM 0"


def test_without_the_scopes_of_landlock_signals_are_kept_in_as_well() -> None:
    kind = Cage(files=False)
    with closing(LocalExecutor(adversary, preload.CPU, cage=CageParts.of(kind))) as executor:
        assert tried(executor, "signals", os.getpid()) == "EPERM"
        assert tried(executor, "signals_its_parent") == "EPERM"
        assert tried(executor, "signals_all") == "EPERM"


def test_there_are_limits(executor: LocalExecutor) -> None:
    files, processes, size, data = json.loads(tried(executor, "limits"))
    assert 0 < files <= cage.MOST_FILES
    assert 0 < processes <= cage.MOST_PROCESSES
    assert 0 < size <= cage.LARGEST_FILE
    assert 0 < data <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_a_wall_that_is_switched_off_is_not_there(tmp_path: Path) -> None:
    kind = Cage(files=False, network=False, memory=False, processes=False, compiles=("float32",))
    (tmp_path / "file").write_bytes(b"there")
    with (
        closing(LocalExecutor(adversary, preload.CPU, cage=CageParts.of(kind))) as executor,
        socket.create_server(("127.0.0.1", 0)) as server,
    ):
        assert tried(executor, "reads", tmp_path / "file") == "b'ther'"
        assert tried(executor, "connects", server.getsockname()[1]) == "connected"
        assert tried(executor, "traces", os.getpid()) == "EPERM"
        assert tried(executor, "starts_processes") in ("done 0 0 ENOENT", "done 0 0 EACCES")
        assert tried(executor, "makes_code").startswith("made 0 0")


def test_what_a_kind_of_device_names_can_be_used(tmp_path: Path) -> None:
    for name in ("read", "node0", "node1"):
        (tmp_path / name).write_bytes(b"there")
    kind = Cage(reads=(f"{tmp_path}/read",), writes=(f"{tmp_path}/node*",))
    with closing(LocalExecutor(adversary, preload.CPU, cage=CageParts.of(kind))) as executor:
        assert tried(executor, "reads", tmp_path / "read") == "b'ther'"
        assert tried(executor, "writes", tmp_path / "read") == "EACCES"
        assert tried(executor, "writes", tmp_path / "node1") == "4"


@pytest.mark.parametrize("caged", [True, pytest.param(False, marks=[pytest.mark.slow, pytest.mark.sampled(1)])])
@pytest.mark.parametrize("act", ["reads_the_store", "overwrites_the_store"])
def test_a_mutant_that_tries_gets_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, toolchain: CpuToolchain, act: str, caged: bool
) -> None:
    """It crashes where it could open the store, and else writes no output. Without the cage it can."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    store = tmp_path / "studies.db"
    store.write_bytes(b"seeds")
    family = Family.load(KERNELS / "conduct")
    parts = CageParts.of(DEVICES["cpu"].cage, family.include_dirs) if caged else None
    with cpu_judge(toolchain, family, cage=parts) as executor:
        fault = judged(executor, conduct(act), CONDITIONS).fault
    assert fault.code == ("G1.unwritten" if caged else "process.signal"), fault
    assert (store.read_bytes() == b"seeds") == (caged or act == "reads_the_store")


def test_a_shipped_variant_passes_within(toolchain: CpuToolchain) -> None:
    """With all that the gate asks for: torch's products of 16-bit types, and the listing of the machine code."""
    family, problem = Family.load(config.kernels_dir() / "sdpa"), SdpaProblem.parse("(1,2,40,64) bfloat16")
    parameters = {"BLOCK_N": 64, "EXP": "poly5", "SYNC_POLICY": 0, "THREADS": 1, "UNROLL": 1}
    variant = Variant(family="sdpa", backend="cpu", impl="scalar", parameters=parameters)
    conditions = CONDITIONS.model_copy(update={"problems": (problem,)})
    parts = CageParts.of(DEVICES["cpu"].cage, family.include_dirs)
    with cpu_judge(toolchain, family, cage=parts) as executor:
        outcome = judged(executor, variant, conditions, soak="never")
    assert outcome.gate.passed, outcome.fault


def test_what_is_lacking_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cage.missing(Cage()) == []
    assert cage.described(Cage()) == {"cage": cage.summary(Cage())}
    assert "landlock" in cage.summary(Cage())
    monkeypatch.setattr(landlock, "version", lambda: 0)
    monkeypatch.setattr(seccomp, "machine", lambda: None)
    assert [each.split(":")[0] for each in cage.missing(Cage())] == ["files", "system calls"]
    assert [each.split(":")[0] for each in cage.missing(Cage(compiles=("float16",)))][2:] == ["code"]
    assert cage.summary(Cage()) == "limits"
    around = choose_device(load_space("sdpa_cpu")).device.environment
    assert around["cage"] == "limits"
    assert around["cage_lacks"] == ". ".join(cage.missing(DEVICES["cpu"].cage))
    assert around["cage_lacks"].startswith("files: ")
    assert any(each.startswith("memory") for kind in DEVICES.values() for each in cage.missing(kind.cage))
