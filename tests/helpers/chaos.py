"""A worker that is killed, stopped and told to go at random, with what it has started, and a look at what is left.

The victims: the worker (which is the driver), its fork server, the process of the device, a compiler; the store's lock;
and, where the store is on a server, the server.
"""

import contextlib
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from optuna.trial import TrialState

from autotuner.spaces.space import SpaceFile
from autotuner.store import Store, queries, sweeps
from autotuner.store.records import SweepRecord
from autotuner.values.sweep import State
from autotuner.values.variant import Variant
from autotuner.values.verdict import Verdict
from tests.helpers.command_line import SCRIPT
from tests.helpers.postgresql import Server
from tests.helpers.processes import marked, wait_for_the_rest

COMPILERS = {"g++", "cc1plus", "as", "ld", "collect2", "nvcc", "cicc", "ptxas"}
GRACE_S = 10.0
"""Seconds after which what was asked to go has to be gone: what Slurm and Kubernetes give."""
PLUGINS = Path(__file__).parent.parent / "plugins"
AROUND = {"PYTHONPATH": os.pathsep.join(filter(None, (str(PLUGINS), os.environ.get("PYTHONPATH"))))}
"""What a process needs around it that is to know the packages there."""
DRAWN = "drawn_cpu"
"""The kind of device that the worker of such a sweep serves."""


def lay_out_drawn(folder: Path) -> None:
    """Puts a family and a space into a user's folder whose variants are built and judged like any others, and whose
    times are drawn: a busy machine changes nothing that a sweep of them finds. This process, too, knows the op and the
    device of such a sweep."""
    if str(PLUGINS) not in sys.path:
        sys.path.append(str(PLUGINS))
    shutil.copytree(PLUGINS / DRAWN / "kernels", folder, dirs_exist_ok=True)


class Chaos:
    """A worker of its own on a store, and what is done to it."""

    def __init__(
        self,
        folder: Path,
        store: str,
        seed: int,
        server: Server | None = None,
        first_lock_s: float | None = None,
        devices: str = "cpu",
    ) -> None:
        """`first_lock_s`: seconds that the store is locked for the first time; the others are short. `devices`: which
        the worker serves."""
        self._folder, self._store, self._server = folder, store, server
        self._environment = {**os.environ, **AROUND}
        self._draw = random.Random(seed)
        self._devices = devices
        self._first_lock_s = first_lock_s
        self._mark = f"MARK_OF_CHAOS={uuid.uuid4()}"
        self._worker: subprocess.Popen[bytes] | None = None
        self.done: Counter[str] = Counter()
        """What was done, how often."""
        self.slowest_end_s = 0.0
        """The longest that the worker took to go when it was told to."""
        self.memory: list[tuple[float, int]] = []
        """MiB and open files of the worker, a sample every few seconds; it begins anew with each worker."""
        self.peak = (0.0, 0)

    def command(self, *arguments: str) -> str:
        """What a command of autotuner prints."""
        command = [str(SCRIPT), *arguments, "--store", self._store]
        done = subprocess.run(command, cwd=self._folder, env=self._environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def see_to_the_worker(self) -> None:
        """Starts one where none runs, as a service manager does, and samples it."""
        if self._worker is None or self._worker.poll() is not None:
            name, _, value = self._mark.partition("=")
            with (self._folder / "worker.log").open("ab") as log:
                self._worker = subprocess.Popen(
                    [str(SCRIPT), "worker", "--devices", self._devices, "--store", self._store],
                    cwd=self._folder,
                    env={**self._environment, name: value},
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
        with contextlib.suppress(OSError, StopIteration):
            proc = Path(f"/proc/{self._worker.pid}")
            line = next(line for line in (proc / "status").read_text().splitlines() if line.startswith("VmRSS"))
            self.memory.append((int(line.split()[1]) / 1024, len(list((proc / "fd").iterdir()))))
            self.peak = max(self.peak[0], self.memory[-1][0]), max(self.peak[1], self.memory[-1][1])

    def require_the_worker(self) -> None:
        """Raises AssertionError where it has ended."""
        code = self._worker.poll()
        assert code is None, f"the worker ended with {code}: {(self._folder / 'worker.log').read_text()[-3000:]}"

    def strike(self, kind: str | None = None) -> str:
        """Does one thing of a kind, or of any; what was done."""
        kinds = ["worker", "fork server", "job", "compiler", "stop", "terminate", "usr1"]
        kinds += ["server"] if self._server is not None else ["lock"]
        kind = kind or self._draw.choice(kinds)
        did = self._strike(kind)
        if did:
            self.done[kind] += 1
        return kind if did else ""

    def _strike(self, kind: str) -> bool:
        worker = self._worker
        if worker is None or worker.poll() is not None:
            return False
        if kind == "worker":
            worker.kill()
            worker.wait()
        elif kind == "stop":
            worker.send_signal(signal.SIGSTOP)
            time.sleep(self._draw.uniform(2, 8))
            worker.send_signal(signal.SIGCONT)
        elif kind in ("terminate", "usr1"):
            self.end_worker(signal.SIGTERM if kind == "terminate" else signal.SIGUSR1)
        elif kind == "lock":
            seconds = self._draw.uniform(3, 10)
            self.lock(seconds if self._first_lock_s is None or self.done["lock"] else self._first_lock_s)
        elif kind == "server":
            self._server.stop()
            time.sleep(self._draw.uniform(1, 5))
            self._server.start()
        else:
            victims = self._victims(kind)
            if not victims:
                return False
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._draw.choice(victims), signal.SIGKILL)
        return True

    def end_worker(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Tells the worker to go, and waits until it has. Raises AssertionError where it takes too long."""
        if self._worker is None or self._worker.poll() is not None:
            return
        since = time.monotonic()
        self._worker.send_signal(number)
        code = self._worker.wait(120)
        self.slowest_end_s = max(self.slowest_end_s, time.monotonic() - since)
        # one that is told to go before it listens goes as Python does
        assert code in (0, 130, -number), f"the worker ended with {code}"

    def has(self, kind: str) -> bool:
        """Whether the worker has something of that kind now: a job, a compiler or a fork server."""
        return self._worker is not None and bool(self._victims(kind))

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """The worker, without what it has started, stands still while the block runs, and has no lock on the store."""
        assert self._worker is not None
        with contextlib.closing(sqlite3.connect(self._store, timeout=60, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")  # the worker does not write now
            self._worker.send_signal(signal.SIGSTOP)
            os.waitpid(self._worker.pid, os.WUNTRACED)
            other.execute("ROLLBACK")
        try:
            yield
        finally:
            self._worker.send_signal(signal.SIGCONT)

    def wait_for_the_worker(self, seconds: float = 120) -> int:
        """Until it ends by itself; its exit code."""
        return self._worker.wait(seconds)

    def lock(self, seconds: float) -> tuple[datetime, datetime]:
        """Another program has the store for itself for so long; since when, and until when."""
        with contextlib.closing(sqlite3.connect(self._store, timeout=60, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            since = datetime.now(UTC)
            time.sleep(seconds)
            until = datetime.now(UTC)
            other.execute("ROLLBACK")
        return since, until

    def _victims(self, kind: str) -> list[int]:
        """The worker's fork server, that one's children, or compilers."""
        assert self._worker is not None
        found = marked(self._mark)
        servers = [pid for pid, (parent, name) in found.items() if parent == self._worker.pid and "python" in name]
        if kind == "fork server":
            return servers
        if kind == "job":
            return [pid for pid, (parent, name) in found.items() if parent in servers and name not in COMPILERS]
        return [pid for pid, (_, name) in found.items() if name in COMPILERS]

    def wait_for_the_rest(self) -> None:
        """Until nothing that the worker started is left. Raises AssertionError where something is."""
        wait_for_the_rest(self._mark)


def recorded(store: Store, study: str) -> dict[int, tuple[str, str]]:
    """Variant and verdict of each trial in the store."""
    found = dict(store.outcomes(study))
    return {number: (outcome.variant.digest, str(outcome.verdict)) for number, outcome in found.items()}


def require_whole(store: Store, sweep: SweepRecord, before: Sequence[dict[int, tuple[str, str]]]) -> int:
    """It is done, and its study is whole."""
    assert sweep.state == State.DONE, f"{sweep.state}: {sweep.detail}"
    return require_whole_study(store, str(sweep.study), before)


def require_whole_study(store: Store, study: str, before: Sequence[dict[int, tuple[str, str]]]) -> int:
    """After its end: each variant is judged once, none is lost, none left running; how many were judged. Raises
    AssertionError."""
    final = recorded(store, study)
    for each in before:
        lost = [number for number, (variant, _) in each.items() if final.get(number, ("", ""))[0] != variant]
        assert not lost, f"trials {lost} are not there any more"
    judged = [variant for variant, verdict in final.values() if Verdict(verdict).judges]
    assert len(set(judged)) == len(judged), "a variant was judged twice"
    storage = store.optuna_storage()
    trials = storage.get_all_trials(storage.get_study_id_from_name(study), deepcopy=False)
    running = [trial.number for trial in trials if trial.state == TrialState.RUNNING]
    assert not running, f"trials {running} never ended"
    told = {trial.number: trial.params for trial in trials if trial.state == TrialState.COMPLETE}
    untold = [number for number, (_, verdict) in final.items() if Verdict(verdict).judges and number not in told]
    assert not untold, f"trials {untold} were judged and not told"
    file = SpaceFile.stored(queries.study(store, study).space_document)
    for number, point in told.items():
        # a point that was enqueued twice is told from the store the second time
        assert Variant.of(file.family, file.backend, point).digest in judged, f"trial {number} was told and not judged"
    return len(judged)


def events_of(store: Store, sweep: int, kind: str) -> int:
    """How many of a kind a sweep has had."""
    return sum(event.kind == kind for event in sweeps.events(store, sweep))
