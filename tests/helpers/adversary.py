"""A backend whose variants try what a cage must keep them from. The attempts are made in the process that runs
variants, by what a variant has too: the system calls."""

import ctypes
import errno
import json
import mmap
import os
import resource
import signal
import socket
import struct
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

from autotuner.forge import seccomp
from autotuner.run.line import Passed
from autotuner.run.local import LocalExecutor
from autotuner.values.conditions import Conditions
from autotuner.values.gate_report import GateReport
from autotuner.values.outcome import Artifact, Say
from autotuner.values.verdict import Fault, Verdict
from tests.conformance.executors import PlayBackend, judge_job
from tests.helpers.ends import outcome

STORE = ("reads", "writes", "appends", "truncates", "removes", "renames", "links", "writes_in_a_child")


class Adversary(PlayBackend):
    """Tries what IMPL says on TARGET; its fault tells what came of it."""

    def check(self, artifact: Artifact, conditions: Conditions, say: Say, passed: Passed | None = None) -> GateReport:
        target = str(artifact.variant.parameters["TARGET"])
        try:
            said = ATTEMPTS[artifact.variant.impl](target)
        except OSError as error:
            said = errno.errorcode[error.errno or 0]
        fault = Fault(verdict=Verdict.INCORRECT, code="told", detail=str(said))
        return GateReport(artifact=artifact.digest, required=(), checks=(), fault=fault)


def adversary() -> Adversary:
    return Adversary()


def system_call(name: str, *arguments: int) -> int:
    """The result of a system call by its number. Raises OSError."""
    here = seccomp.machine()
    assert here is not None
    tables = {**seccomp.REFUSED, **seccomp.PROTECT, "ptrace": seccomp.PTRACE, "prctl": seccomp.PRCTL}
    tables |= {"clone": seccomp.CLONE, "clone3": seccomp.CLONE3, "mmap": seccomp.MMAP}
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    found = int(libc.syscall(tables[name][here[1]], *map(ctypes.c_long, arguments)))
    if found < 0:
        raise OSError(ctypes.get_errno(), name)
    return found


def fork_with(name: str, *arguments: int) -> str:
    """By clone or clone3."""
    if system_call(name, *arguments) == 0:
        os._exit(0)
    return "forked"


def clone3(flags: str) -> str:
    arguments = struct.pack("=8Q", int(flags), 0, 0, 0, signal.SIGCHLD, 0, 0, 0)
    kept = ctypes.create_string_buffer(arguments, len(arguments))
    return fork_with("clone3", ctypes.addressof(kept), len(arguments))


def starts_threads(_: str) -> str:
    """By all the ways that libraries have."""
    import torch

    torch.set_num_threads(2)
    total = float(torch.ones(512, 512).mm(torch.ones(512, 512)).sum())
    thread = threading.Thread(target=str)
    thread.start()
    thread.join()
    return f"{total:.0f}"


def starts_processes(_: str) -> str:
    """The same, each with what came of it."""
    ways: list[Callable[[], object]] = [
        lambda: in_a_child(lambda: None),
        lambda: subprocess.run(["/bin/sh", "-c", "exit 0"], check=True).returncode,
        lambda: os.waitpid(os.posix_spawn("/bin/sh", ["sh", "-c", "exit 0"], os.environ), 0)[1],
        lambda: os.execv("/nowhere", ["nowhere"]),
    ]
    return " ".join(map(outcome_of, ways))


def outcome_of(attempt: Callable[[], object]) -> str:
    try:
        return str(attempt())
    except OSError as error:
        return errno.errorcode[error.errno or 0]


PAGE = mmap.PAGESIZE
READS, WRITES, RUNS = mmap.PROT_READ, mmap.PROT_WRITE, mmap.PROT_EXEC
PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


def makes_code(_: str) -> str:
    """Memory that is writable and executable, at once or one after the other."""
    memory = system_call("mmap", 0, PAGE, READS | WRITES, PRIVATE, -1, 0)
    ways: list[Callable[[], object]] = [
        lambda: system_call("mmap", 0, PAGE, READS | WRITES | RUNS, PRIVATE, -1, 0) and "made",
        lambda: system_call("mprotect", memory, PAGE, READS | WRITES | RUNS),
        lambda: system_call("mprotect", memory, PAGE, READS | RUNS),
        lambda: system_call("pkey_mprotect", memory, PAGE, READS | RUNS, -1),
        lambda: system_call("mprotect", memory, PAGE, READS),
    ]
    return " ".join(map(outcome_of, ways))


def connect(target: str) -> str:
    with socket.socket(socket.AF_INET) as opened:
        opened.connect(("127.0.0.1", int(target)))
    return "connected"


def limits(_: str) -> str:
    names = ("RLIMIT_NOFILE", "RLIMIT_NPROC", "RLIMIT_FSIZE", "RLIMIT_DATA")
    return json.dumps([resource.getrlimit(getattr(resource, name))[1] for name in names])


def in_a_child(attempt: Callable[[], object]) -> str:
    """What comes of it in a child of the process."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        try:
            attempt()
            os.write(writer, b"done")
        except OSError as error:
            os.write(writer, errno.errorcode[error.errno or 0].encode())
        os._exit(0)
    return os.read(reader, 100).decode()


def multiplies_on_the_device(_: str) -> float:
    """With a library that is loaded and a kernel that is found only now."""
    import torch

    ones = torch.ones(512, 512, device="cuda", dtype=torch.float16)
    return float((ones @ ones).float().mean())


ATTEMPTS: dict[str, Callable[[str], object]] = {
    "multiplies_on_the_device": multiplies_on_the_device,
    "reads": lambda target: Path(target).read_bytes()[:4],
    "lists": lambda target: sorted(each.name for each in Path(target).iterdir()),
    "writes": lambda target: Path(target).write_bytes(b"mine"),
    "appends": lambda target: os.open(target, os.O_WRONLY | os.O_APPEND),
    "truncates": lambda target: os.truncate(target, 0),
    "removes": lambda target: Path(target).unlink(),
    "renames": lambda target: Path(target).rename(f"{target}.gone"),
    "links": lambda target: Path(f"{target}.link").hardlink_to(target),
    "writes_in_a_child": lambda target: in_a_child(lambda: Path(target).write_bytes(b"mine")),
    "writes_scratch": lambda _: (Path(os.environ["TMPDIR"]) / "mine").write_bytes(b"mine"),
    "connects": connect,
    "connects_within_the_machine": lambda target: socket.socket(socket.AF_UNIX).connect(str(target)),
    "listens": lambda _: socket.socket(socket.AF_INET6),
    "signals": lambda target: os.kill(int(target), 0 if target == "1" else signal.SIGCONT),
    "signals_its_parent": lambda _: os.kill(os.getppid(), signal.SIGKILL),
    "signals_all": lambda _: os.kill(-1, signal.SIGCONT),
    "traces": lambda target: system_call("ptrace", 16, int(target), 0, 0),
    "reads_memory": lambda target: os.open(f"/proc/{target}/mem", os.O_RDONLY),
    "reads_environment": lambda target: Path(f"/proc/{target}/environ").read_bytes(),
    "reads_by_number": lambda target: system_call("process_vm_readv", int(target), 0, 0, 0, 0, 0),
    "sets_the_clock": lambda _: system_call("clock_settime", 0, 0),
    "enters_a_namespace": lambda flags: system_call("unshare", int(flags)),
    "forks_into_a_namespace": lambda flags: fork_with("clone", int(flags) | signal.SIGCHLD, 0, 0, 0, 0),
    "forks_by_clone3": clone3,
    "starts_threads": starts_threads,
    "starts_processes": starts_processes,
    "makes_code": makes_code,
    "shares_memory": lambda _: system_call("shmget", 0, PAGE, 0o1600),
    "attaches_memory": lambda _: system_call("shmat", 0, 0, 0),
    "sends_messages": lambda _: system_call("msgget", 0, 0o1600),
    "counts_together": lambda _: system_call("semget", 0, 1, 0o1600),
    "controls_speculation": lambda what: system_call("prctl", 53, int(what), 4, 0, 0),
    "hides_the_time_stamp": lambda _: system_call("prctl", 26, 1, 0, 0, 0),
    "mounts": lambda _: system_call("mount", 0, 0, 0, 0, 0),
    "queues": lambda _: system_call("io_uring_setup", 1, 0),
    "limits_others": lambda target: resource.prlimit(int(target), resource.RLIMIT_CORE, (0, 0)),
    "limits": limits,
    "signals_its_child": lambda _: in_a_child(lambda: os.kill(os.getpid(), 0)),
    "computes": lambda _: sum(range(10)),
}


def tried(executor: LocalExecutor, what: str, target: object = "") -> str:
    executor.submit(judge_job(what, TARGET=str(target)))
    ended = outcome(executor.wait(60))
    assert ended.fault.code == "told", ended.fault
    return ended.fault.detail


def the_store_stays_shut(executor: LocalExecutor, folder: Path) -> None:
    """Asserts that nothing which a variant may try reads or changes a store in that empty folder."""
    store = folder / "studies.db"
    store.write_bytes(b"seeds")
    for what in STORE:
        assert tried(executor, what, store) in ("EACCES", "EXDEV", "EPERM"), what
        assert store.read_bytes() == b"seeds"
        assert [each.name for each in folder.iterdir()] == ["studies.db"]
