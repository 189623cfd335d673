"""The inside of a process that does jobs. It is forked from the zygote, and a variant may spoil it in any way."""

import builtins
import contextlib
import ctypes
import os
import resource
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from autotuner.devices.environment import builders
from autotuner.forge import loaded_variant
from autotuner.gate.cases import Case
from autotuner.ops import op_of
from autotuner.ops.surroundings import CHANGED, MODULES, OF_TORCH, REPLACED, THREAD
from autotuner.race.third_clock import report_to, tell_meddled
from autotuner.run import cage
from autotuner.run.cage import CageParts, Work
from autotuner.run.jobs import AnyJob, BuildJob, CalibrationJob, JudgeJob, RaceJob, perform
from autotuner.run.line import Line, MakeLine
from autotuner.run.messages import LONGEST_STEP, Message, Raised, send
from autotuner.values.errors import AutotunerError, InfrastructureError, InputError, OracleError
from autotuner.values.outcome import Artifact, Say

HIGHEST_FILE = 1 << 16
JOBS = TypeAdapter[AnyJob](AnyJob)
LOOKS_APART = 2.0
"""Seconds, in a job, between looks at what a variant may have changed of its process."""
BUILDERS_NICE = 10
"""Compilers give way to what launches and times on a device: a launch that waits for a CPU is an idle device."""


class Role(NamedTuple):
    """What a process is for."""

    factory: MakeLine
    devices: str | None
    """Which it sees, in the words of its kind of device: "" for none, such as a UUID for one, None for those that the
    driver sees."""
    shown_by: tuple[str, ...]
    """The variables of the environment that say so."""
    jobs: int
    """Jobs after which it ends."""
    cage: CageParts | None = None
    """What it enters before it runs a variant; None: nothing."""


def log_of(folder: Path, number: int) -> Path:
    """The file in that folder with what is printed during that job."""
    return folder / f"{number}.log"


def serve(jobs: Connection, replies: Connection, stamps: socket.socket, key: bytes, folder: Path, role: Role) -> None:
    """Does the jobs that come, one after another, and sends what happens; `stamps` is for what it times. The line is
    made before the first job. `folder` is where this process writes what is temporary.

    The next job may be there before the driver has read how the last one ended. So the process ends by itself where
    that ending spoils it; the driver, who cannot rely on this, throws away whatever came after.
    """
    _isolate(jobs.fileno(), replies.fileno(), stamps.fileno())
    report_to(stamps)
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    if role.devices is not None:
        os.environ.update(dict.fromkeys(role.shown_by, role.devices))
    if role.devices == "":
        os.nice(BUILDERS_NICE)
    doer = _Doer(role, folder, lambda message: send(replies, key, message))
    for _ in range(role.jobs):
        try:
            head, _, order = jobs.recv_bytes().partition(b" ")
        except EOFError:  # the driver has gone
            break
        if doer.does(int(head), order).spoils:
            break
    os._exit(0)  # what a variant left behind (threads, exit handlers) must not run


class _Doer:
    """Does jobs with one line, and remembers what it has done before the first variant."""

    def __init__(self, role: Role, folder: Path, tell: Callable[[Message], None]) -> None:
        self._role, self._folder, self._tell = role, folder, tell
        self._line = cache(role.factory)
        self._looks_with: Callable[[], None] | None = None  # once it may hold what a variant changed
        self._looked_s = 0.0
        self._cage = role.cage  # None once it is inside
        self._before = (
            {} if role.devices == "" else _surroundings(imports=False)
        )  # for who imports a module with the line
        if role.devices != "":
            with contextlib.suppress(Exception):  # its first job is told
                self._line()

    def does(self, number: int, order: bytes) -> Message:
        """How the job that is ordered, in JSON, ended; it is told."""
        _print_to(log_of(self._folder, number))
        ending = self._perform(number, order)
        if not ending.failure:  # nothing is believed of that, and there may be no memory to look with
            self._look()
        self._tell(ending)
        return ending

    def _perform(self, number: int, order: bytes) -> Message:
        """An InfrastructureError is for the driver only when there is no line: nothing can be judged then; raised
        later, it is about this job."""

        def say(step: str) -> None:
            if time.monotonic() - self._looked_s >= LOOKS_APART and self._line().imports:
                self._look()  # what is changed may be changed back before the end
            self._tell(Message(number=number, step=step[:LONGEST_STEP]))

        for_driver: tuple[type[AutotunerError], ...] = (InputError, OracleError, InfrastructureError)
        try:
            line, job = self._line(), JOBS.validate_json(order)
            if not isinstance(job, BuildJob):
                self._prepare(job, line, say)
            for_driver = (InputError, OracleError)
            return Message(number=number, result=perform(job, line, say))
        except for_driver as error:
            return Message(number=number, raised=Raised.of(error))
        except BaseException as error:
            traceback.print_exc()
            text = f"{type(error).__name__}: {error}".encode(errors="backslashreplace").decode()
            return Message(number=number, failure=text)

    def _look(self) -> None:
        if self._looks_with is not None:
            self._looks_with()
            self._looked_s = time.monotonic()

    def _prepare(self, job: JudgeJob | RaceJob | CalibrationJob, line: Line, say: Say) -> None:
        """What the job needs of this process: truths are drawn up, what a baseline compiles is there, what a variant
        changes is seen from now on, and it is in its cage."""
        artifact = job.built.artifact if isinstance(job, JudgeJob) else None
        kind = self._role.cage.kind if self._role.cage is not None else None
        if self._looks_with is None and kind is not None and kind.references:
            draw_up(line.references(job.conditions, artifact), say)
        if isinstance(job, CalibrationJob):
            line.compile_first(job.conditions, (), say)
            # a baseline that wants more memory than there is does not take the problem
            cage.limit(memory=kind is not None and kind.memory)
            return
        if self._looks_with is None:
            from autotuner.ops import functions  # imports torch

            built = job.artifacts if isinstance(job, RaceJob) else [job.built.artifact]
            since = self._before | functions.operators() if line.imports else {}
            line.compile_first(job.conditions, built, say)
            self._looks_with = watch(tell_meddled, since, line.imports)
        if self._cage is not None:
            parts, self._cage = self._cage, None
            self._enter(parts, job, line, artifact)

    def _enter(self, parts: CageParts, job: JudgeJob | RaceJob, line: Line, artifact: Artifact | None) -> None:
        if artifact is not None and artifact.path:  # it may lie outside of the cache
            parts = parts._replace(reads=(*parts.reads, Path(artifact.path).parent))
        sanitizes = isinstance(job, JudgeJob) and (job.sanitize or job.checks_memory)
        problem = job.conditions.compiled_for
        pinned = [each for name, each in op_of(problem).baselines.items() if name in job.conditions.baselines]
        writes_code = line.imports or any(each.writes_code for each in pinned)
        cage.enter(parts, self._folder, Work(problem.dtype, writes_code, sanitizes))


def draw_up(asked: Sequence[tuple[Case, int]], say: Say) -> None:
    """Has the truths that are not kept yet drawn up and kept: this process will only read them. That is done by others,
    one a CPU, forked from this, which end before a variant is loaded here: what they needed is no part of the variant's
    surroundings."""
    from autotuner.gate.tolerance import kept_at  # imports torch, which the driver does without
    from autotuner.ops.tensors import end_threads

    missing = [(case, seed) for case, seed in dict.fromkeys(asked) if not kept_at(case, seed).is_file()]
    if not missing:
        return
    end_threads()  # a module of the user's may have computed
    done, tell = os.pipe()
    cpus = builders()
    count = min(cpus, len(missing))
    children = [_drawing(missing[first::count], cpus // count, tell) for first in range(count)]
    os.close(tell)
    for case, _ in missing:
        say(f"reference case {case.name}")
        if not os.read(done, 1):  # all have ended: the rest is computed where it is asked for, and not kept
            break
    os.close(done)
    for child in children:
        os.waitpid(child, 0)


def _drawing(missing: Sequence[tuple[Case, int]], threads: int, tell: int) -> int:
    """A process that draws these up, on so many threads if large, and writes to `tell` after each; its number."""
    from autotuner.gate.tolerance import truth

    child = os.fork()
    if child == 0:
        try:
            die_with_parent()
            for case, seed in missing:
                truth(case, seed, threads)
                os.write(tell, b".")
        finally:
            os._exit(0)
    return child


def close_others(*keep: int) -> None:
    """Closes every file but these and the standard ones."""
    first = 3
    for kept in (*sorted(keep), HIGHEST_FILE):
        os.closerange(first, kept)
        first = kept + 1


def die_with_parent() -> None:
    """The system kills this process when its parent ends."""
    with contextlib.suppress(OSError, AttributeError):
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def _isolate(*keep: int) -> None:
    """A session of its own; output to nowhere; no core dumps; first to go when memory runs out; dies with its parent.

    Every other file is closed: one of them keeps the zygote alive, and a variant could write to it.
    """
    os.setsid()
    die_with_parent()
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    close_others(*keep)
    _forget_tracker()
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(nothing, standard)


def _forget_tracker() -> None:
    """multiprocessing writes to the process that tracks semaphores by the number of a file that is closed now. The next
    file has that number, such as one of a device's driver: it would be written to, and closed if it took no bytes. Who
    makes a semaphore, as torch's compiler does, now starts another tracker."""
    tracker: Any = getattr(resource_tracker, "_resource_tracker", None)
    if tracker is not None:
        tracker._fd = tracker._pid = None


def _print_to(log: Path) -> None:
    """From here on what is printed goes into that file; what was printed before does not."""
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    ctypes.CDLL(None).fflush(None)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    for standard in (1, 2):
        os.dup2(output, standard)
    if output > 2:  # else it took the place of one that a variant had closed
        os.close(output)


# Whether a variant meddles with the Python of the process -------------------------------------------------------------

RUNS = ("compile", "exec")
"""What Python says to an audit hook before it runs source."""
BUILTINS = frozenset(vars(builtins))
"""A name that somebody adds to these hides none of ours."""


def watch(tell: Callable[[str], None], before: dict[str, object], imports: bool) -> Callable[[], None]:
    """From now on `tell` is called once a variant hands Python source to run, before that runs, so that nothing takes
    it back. What is returned calls it when something is not as it was `before`, or is now: a function or a constant, a
    setting, the signals or the priority of this thread; where a module is imported, also what torch's operators run."""

    def heard(event: str, _arguments: object) -> None:
        if event in RUNS and _called_by_variant():
            tell(CHANGED[0])

    sys.addaudithook(heard)
    kept = _surroundings(imports) | before

    def look() -> None:
        now = _surroundings(imports)
        if changed := next((name for name, each in kept.items() if now.get(name) != each), None):
            tell(next(each for each in CHANGED if changed.startswith(each)))

    return look


def _called_by_variant() -> bool:
    """Whether no Python lies between the event and a variant's call: or none at all, in a thread of its own."""
    try:
        caller = sys._getframe(2)
    except ValueError:
        return True
    return caller.f_code.co_filename == loaded_variant.__file__


def _surroundings(imports: bool) -> dict[str, object]:
    """Also which signals this thread refuses, and its priority beside its parent's: others may change all alike."""
    from autotuner.ops.functions import operators, settings

    thread: list[object] = [os.getpriority(os.PRIO_PROCESS, 0) - os.getpriority(os.PRIO_PROCESS, os.getppid())]
    with Path("/proc/thread-self/status").open() as lines:
        thread += [os.sched_getscheduler(0), *(line for line in lines if line.startswith(("SigBlk", "SigIgn")))]
    return {**dict(_bindings(imports)), THREAD: thread, **settings(), **(operators() if imports else {})}


def _bindings(imports: bool) -> Iterator[tuple[str, dict[str, tuple[int, int]]]]:
    names = {*MODULES, *OF_TORCH} if imports else {*MODULES}
    for name, module in [*sys.modules.items()]:
        if name.partition(".")[0] == MODULES[-1] or name in names:
            watched = (
                BUILTINS if name == "builtins" else {each for each in vars(module) if each[:2] != "__"} - {REPLACED}
            )
            held = {each: one for each, one in [*vars(module).items()] if each in watched}
            yield name, _named(held)
            for each in held.values():
                if isinstance(each, type) and each.__module__ == name:
                    yield f"{name}.{each.__qualname__}", _named({**vars(each)})


def _named(held: dict[str, object]) -> dict[str, tuple[int, int]]:
    """Without modules, and what Python keeps beside a class's own names: they come when they are first needed."""
    return {
        name: (id(one), id(one.__code__) if isinstance(one, FunctionType) else 0)
        for name, one in held.items()
        if not isinstance(one, ModuleType) and (callable(one) or not name.startswith("__"))
    }
