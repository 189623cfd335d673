"""Jobs in processes of their own on this machine, forked from a zygote that has imported torch once.

A variant may crash, hang, exit, print, or spoil its process in any way: that costs this process, and the job ends with
a verdict. The zygote is multiprocessing's fork server; it never runs a variant and starts no threads.

Builds have fresh processes that see no device. Everything else is done by one process at a time, which serves several
jobs where `jobs_per_process` says so, and is replaced at once after anything odd.
"""

from __future__ import annotations

import multiprocessing
import signal
import tempfile
import time
from itertools import pairwise
from multiprocessing.connection import wait
from pathlib import Path

from pydantic import Field

from autotuner.errors import InfrastructureError
from autotuner.evaluate import AnyJob, BuildJob, JudgeJob, Result
from autotuner.executors.messages import Message
from autotuner.executors.process import BackendFactory, Role
from autotuner.executors.worker import Worker
from autotuner.model import Model
from autotuner.outcome import Artifact, Outcome
from autotuner.report import CheckResult, GateReport
from autotuner.verdict import Fault, SystemFault, Verdict

SPOILING = (
    Verdict.CRASHED,
    Verdict.HUNG,
    Verdict.CORRUPTING,
    Verdict.NONDETERMINISTIC,
    Verdict.LAUNCH_FAILED,
)
"""After these verdicts nothing is certain about the process that gave them."""


class Deadlines(Model):
    """Seconds that one step of a job may take before its process is killed."""

    start: float = 60
    build: float = 330
    check: float = Field(default=30, description="one step of the gate: a case or an invariant")
    measure: float = 120
    calibrate: float = 300
    sanitize: float = 900

    def of(self, stage: str) -> float:
        """The deadline of a step in that stage."""
        return float(getattr(self, stage, self.check))


class LocalExecutor:
    """Builds in up to `builders` processes; one process for the device. Without `overlap` no build runs beside a job
    on the device, as it must be where they share CPUs."""

    def __init__(
        self,
        factory: BackendFactory,
        preload: tuple[str, ...] = (),
        deadlines: Deadlines | None = None,
        builders: int = 1,
        overlap: bool = False,
        jobs_per_process: int = 1,
    ) -> None:
        """`factory` makes the backend in each process and must be picklable.

        A device that works no more shows when its process makes the backend: `factory` raises InfrastructureError, or
        does not return before the deadline. `wait` raises InfrastructureError then.
        """
        self._builder = Role(factory, sees_device=False, jobs=1)
        self._judge = Role(factory, sees_device=True, jobs=jobs_per_process)
        self._builders, self._overlap = builders, overlap
        self._deadlines = deadlines or Deadlines()
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["autotuner.executors.process", *preload])
        self._waiting: dict[int, AnyJob] = {}
        self._running: list[Worker] = []
        self._idle: Worker | None = None
        self._next = 0
        self._logs = tempfile.TemporaryDirectory(prefix="autotuner-logs-")

    @property
    def width(self) -> int:
        """One, or, where builds overlap, one for each builder, one on the device and one that is ready for it."""
        return self._builders + 2 if self._overlap else 1

    def submit(self, job: AnyJob) -> int:
        number = self._next
        self._next += 1
        self._waiting[number] = job
        self._start_waiting()
        return number

    def wait(self, timeout: float | None = None) -> tuple[int, Result] | None:
        until = time.monotonic() + timeout if timeout is not None else float("inf")
        while self._running:
            first = min(self._deadline(worker) for worker in self._running)
            signs = [sign for worker in self._running for sign in worker.signs]
            wait(signs, max(0.0, min(first, until) - time.monotonic()))
            for worker in list(self._running):
                number = worker.number  # its process may have another job by the time this one's result is returned
                result = self._progress(worker)
                if result is not None:
                    return number, result
            if time.monotonic() >= until:
                return None
        return None

    def close(self) -> None:
        self._waiting.clear()
        for worker in (*self._running, *([self._idle] if self._idle is not None else [])):
            worker.end()
        self._running, self._idle = [], None
        self._logs.cleanup()

    # Which job runs when ----------------------------------------------------------------------------------------

    def _start_waiting(self) -> None:
        """Starts the jobs that may start now, in the order of submission."""
        for number, job in list(self._waiting.items()):
            if self._may_start(job):
                del self._waiting[number]
                self._start(number, job)
            elif not self._overlap:
                return

    def _may_start(self, job: AnyJob) -> bool:
        building = sum(isinstance(worker.job, BuildJob) for worker in self._running)
        judging = len(self._running) - building
        if isinstance(job, BuildJob):
            return building < self._builders and (self._overlap or not judging)
        return not judging and (self._overlap or not building)

    def _start(self, number: int, job: AnyJob) -> None:
        if isinstance(job, BuildJob):
            worker = self._fork(number, self._builder)
        else:
            worker = self._take_idle() or self._fork(number, self._judge)
        worker.give(number, job)
        self._running.append(worker)

    def _fork(self, number: int, role: Role) -> Worker:
        return Worker(self._context, role, Path(self._logs.name) / f"{number}.log")

    def _take_idle(self) -> Worker | None:
        """The device's process, if there is one that can go on."""
        worker, self._idle = self._idle, None
        if worker is not None and not worker.can_go_on:
            worker.end()
            return None
        return worker

    def _release(self, worker: Worker, spoiled: bool) -> None:
        """The worker's job is over: its process is kept or killed, and the next jobs start."""
        self._running.remove(worker)
        if not spoiled and worker.can_go_on:
            self._idle = worker
        else:
            worker.end()
        self._start_waiting()

    # How a job ends ---------------------------------------------------------------------------------------------

    def _deadline(self, worker: Worker) -> float:
        return worker.since + self._deadlines.of(worker.stage)

    def _progress(self, worker: Worker) -> Result | None:
        """Reads what the worker sent; the job's result once there is one."""
        alive = worker.is_alive  # asked first: what was sent before the end is read
        try:
            message = worker.answer()
        except (EOFError, OSError):
            return self._died(worker)
        except Exception as error:  # not written by our code
            detail = f"{error} came through the pipe in {worker.step}"
            return self._lost(worker, Verdict.CRASHED, "process.garbage", detail)
        if message is not None:
            return self._answered(worker, message)
        if not alive:
            return self._died(worker)
        return self._late(worker) if time.monotonic() >= self._deadline(worker) else None

    def _answered(self, worker: Worker, message: Message) -> Result:
        if message.error is not None:
            self._release(worker, spoiled=True)
            raise message.error
        if message.result is None:
            return self._failed(worker, message.failure or "no result came")
        spoiled = isinstance(message.result, Outcome | Fault) and message.result.verdict in SPOILING
        self._release(worker, spoiled)
        return message.result

    def _late(self, worker: Worker) -> Result | None:
        """A step has passed its deadline."""
        detail = f"no end after {self._deadlines.of(worker.stage):.0f} s in {worker.step}; the process was killed"
        if worker.is_fresh and worker.stage == "start" and not isinstance(worker.job, BuildJob):
            self._release(worker, spoiled=True)
            raise InfrastructureError(f"the device does not answer: {detail}")
        return self._lost(worker, Verdict.HUNG, "process.deadline", detail)

    def _died(self, worker: Worker) -> Result | None:
        """The process ended, or closed its pipe, without a result."""
        code = worker.exit_code()
        if code is not None and code < 0:
            name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
            detail, system = f"signal {-code} ({name}) in {worker.step}", SystemFault(signal=-code, name=name)
            return self._lost(worker, Verdict.CRASHED, "process.signal", detail, system)
        how = "its pipe was closed" if code is None else f"it exited with status {code}"
        system = SystemFault(exit_status=code)
        return self._lost(worker, Verdict.CRASHED, "process.exit", f"{how} in {worker.step}", system)

    def _lost(
        self, worker: Worker, verdict: Verdict, code: str, detail: str, system: SystemFault | None = None
    ) -> Result | None:
        """The ending of a job whose process was lost. Before a variant's code was loaded, it is not the variant's.

        What crashes a process that judged others before it is judged again in a fresh one: it may be their doing.
        """
        job = worker.job
        if not isinstance(job, JudgeJob) or worker.stage == "start":
            return self._failed(worker, detail)
        if verdict == Verdict.CRASHED and not worker.is_fresh:
            self._waiting = {worker.number: job, **self._waiting}
            self._release(worker, spoiled=True)
            return None
        fault = Fault(verdict=verdict, code=code, detail=detail, case=worker.step, system=system)
        outcome = Outcome(
            variant=job.variant,
            verdict=verdict,
            artifact=job.built.artifact,
            gate=_until_the_end(worker, job.built.artifact, fault),
            fault=fault,
            seconds={"build": job.built.seconds},
            stderr_tail=worker.tail(),
        )
        self._release(worker, spoiled=True)
        return outcome

    def _failed(self, worker: Worker, why: str) -> Result:
        """Our own machinery failed: an infra_error for a variant's job, an exception for any other."""
        job, tail = worker.job, worker.tail()
        self._release(worker, spoiled=True)
        if not isinstance(job, BuildJob | JudgeJob):
            raise InfrastructureError(f"{why}; {tail}" if tail else why)
        fault = Fault(verdict=Verdict.INFRA_ERROR, code="process.lost", detail=why)
        return Outcome(variant=job.variant, verdict=Verdict.INFRA_ERROR, fault=fault, stderr_tail=tail)


def _until_the_end(worker: Worker, artifact: Artifact, fault: Fault) -> GateReport | None:
    """What is known of the gate of a variant whose process was lost: the checks it had passed, and the one it was in.

    G0.effect is left out: it may have been unavailable.
    """
    begun = [*worker.checks.items(), ("", time.monotonic())]
    checks = [
        CheckResult(code=code, status="pass", seconds=later - since)
        for (code, since), (_, later) in pairwise(begun)
        if code != "G0.effect"
    ]
    if not checks:
        return None
    if worker.stage != "measure":  # the timing is no check of its own
        checks[-1] = checks[-1].model_copy(update={"status": "fail"})
    causal, streams = artifact.causal, artifact.variant.backend == "cuda"
    return GateReport(artifact=artifact.digest, causal=causal, streams=streams, checks=tuple(checks), fault=fault)
