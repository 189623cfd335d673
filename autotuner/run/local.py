"""Jobs in processes of their own on this machine, forked from a zygote that has imported torch once.

A variant may crash, hang, exit, print, or spoil its process in any way: that costs this process, and the job ends with
a verdict. The zygote is multiprocessing's fork server; it never runs a variant and starts no threads.

Builds have fresh processes that see no device. Everything else is done by one process at a time on each device, which
serves several jobs where `jobs_per_process` says so, and is replaced at once after anything odd. Where builds overlap
with judging, that process has its next job in hand while it does one: it goes on without waiting for the driver. What
it has in hand when it is replaced comes first in the new one, whether or not the old one was at it already.
"""

from __future__ import annotations

import shutil
import signal
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait
from pathlib import Path

from pydantic import Field

from autotuner.devices import shown_by
from autotuner.gate.checks import effect
from autotuner.run import inside, zygote
from autotuner.run.cage import CageParts
from autotuner.run.faults import may_be_others
from autotuner.run.fork_server import ForkServer
from autotuner.run.inside import Role
from autotuner.run.job_process import JobProcess, Submitted
from autotuner.run.jobs import AnyJob, BuildJob, CalibrationJob, JudgeJob, RaceJob, Result, faults_in, not_done
from autotuner.run.line import MakeLine
from autotuner.run.messages import Message
from autotuner.run.scratch import Scratch
from autotuner.values import config
from autotuner.values.conditions import Conditions
from autotuner.values.errors import DiskFullError, InfrastructureError
from autotuner.values.gate_report import CheckResult, GateReport
from autotuner.values.model import Model
from autotuner.values.outcome import Artifact, Heat, Outcome
from autotuner.values.verdict import Fault, SystemFault, Verdict

ROUNDS = 4
"""Builds of each builder in a turn, where builds and judging take turns. At its end builders idle for half a build on
average, which is then an eighth of it."""
RESTARTS = 5
"""Fork servers that may be lost with no job's end between them."""
SPARE_BYTES = 1 << 20
"""Where a disk has no more than that, it is full."""
SAME_LAYOUT = 4
"""Fresh jobs, at most, with libraries, stack and heap at the same addresses, where nothing runs beside them: what
depends on these shows in some. Others cost an import of torch."""
AHEAD = 16
"""Variants of a turn at most, of all builders: what is proposed now learns nothing from those still in flight."""


class Deadlines(Model):
    """Seconds that one step of a job may take before its process is killed."""

    start: float = 120
    build: float = 330
    check: float = Field(default=30, description="one step of the gate: a case or an invariant")
    measure: float = Field(default=120, description="an arm that is loaded for a race, or a sample")
    audit: float = Field(default=120, description="a sample: its copies take long where much is moved")
    calibrate: float = 300
    memory: float = 900
    sanitize: float = 900

    def of(self, stage: str) -> float:
        """The deadline of a step in that stage."""
        return float(getattr(self, stage, self.check))


def fork_server(preload: Sequence[str]) -> ForkServer:
    """What forks all processes: it begins to import these modules now, if it does not run yet."""
    return ForkServer([inside.__name__, *preload, zygote.__name__])


class LocalExecutor:
    """Builds in up to `builders` processes; one process for each device, which is a lane.

    Without `overlap` no build runs beside a job on a device, as it must be where they share CPUs. Then building and
    judging take turns: a turn lasts until its queue is empty when the driver waits, who has by then submitted what
    follows from the last result.
    """

    def __init__(
        self,
        factory: MakeLine,
        preload: Sequence[str] = (),
        deadlines: Deadlines | None = None,
        builders: int = 1,
        overlap: bool = False,
        jobs_per_process: int = 1,
        devices: tuple[str | None, ...] = (None,),
        cage: CageParts | None = None,
        who_disturbs: Callable[[], str] = lambda: "",
        before_calibration: Callable[[Conditions], None] = lambda conditions: None,
    ) -> None:
        """`factory` makes the line in each process and must be picklable. `devices`, one a lane, say
        which device its process sees, such as a UUID; None leaves it what the driver sees. `cage`: what the processes
        that run variants enter. `who_disturbs` says who else is at work on the devices now, "" where nobody is.
        `before_calibration` begins what takes long, while the first processes start.

        A device that works no more shows when its process makes the line: `factory` raises InfrastructureError, or
        does not return before the deadline. `wait` raises InfrastructureError then.
        """
        names = shown_by()
        self._builder = Role(factory, "", names, jobs=1)
        self._judges = [Role(factory, device, names, jobs_per_process, cage) for device in devices]
        self.builders, self.lanes, self._overlap = builders, len(devices), overlap
        # Where builds overlap: one for each builder, and for each lane one on the device and one that is ready for it.
        # Elsewhere what makes up a turn; a single builder gains nothing by turns.
        turn = min(ROUNDS * builders, AHEAD) if builders > 1 else 1
        self.width = builders + 2 * self.lanes if overlap else turn
        self._deadlines, self._who_disturbs = deadlines or Deadlines(), who_disturbs
        self._before_calibration = before_calibration
        self._server = fork_server(preload)
        self._fresh = 0
        """Jobs so far that had a process of their own."""
        self._restarts = 0
        """Processes that were lost with the fork server, since a job came to its end."""
        self._stamps = False
        """Whether calibrations, in which no variant is loaded, stamp what they time: then races do."""
        self._waiting: dict[int, Submitted] = {}
        """What no process has been given, by number, in the order in which it is due."""
        self._running: list[JobProcess] = []
        self._idle: dict[int | None, JobProcess] = {}
        """By lane: the device's process, between two jobs. Builders have one job each."""
        self._spare: dict[int | None, JobProcess] = {}
        """By lane: a process that opens the device while a race in a fresh process is got ready, for what follows."""
        self._ending: list[JobProcess] = []
        """Killed, but not known to have gone: on a GPU that may take seconds, which other lanes do not wait for."""
        self._done: deque[tuple[int, Result]] = deque()
        self._building = True
        """Whose turn it is, without overlap."""
        self._next = 0
        self._scratch = Scratch()

    def submit(self, job: AnyJob, lane: int = 0) -> int:
        if not 0 <= lane < self.lanes:
            raise ValueError(f"no lane {lane}")
        if isinstance(job, CalibrationJob):
            self._before_calibration(job.conditions)
        number = self._next
        self._next += 1
        wanted = None if isinstance(job, BuildJob) else lane
        order = b"%d %s" % (number, job.model_dump_json().encode())
        self._waiting[number] = Submitted(number, job, wanted, order)
        self._start_waiting()
        return number

    def wait(self, timeout: float | None = None) -> tuple[int, Result] | None:
        until = time.monotonic() + timeout if timeout is not None else float("inf")
        while True:
            self._collect()
            if self._done:
                return self._done.popleft()
            self._take_turns()
            if (not self._running and not self._waiting) or time.monotonic() >= until:
                return None
            self._sleep(until)

    def close(self) -> None:
        self._waiting.clear()
        self._done.clear()
        for process in (*self._running, *self._idle.values(), *self._spare.values()):
            process.end()
            self._ending.append(process)
        for process in self._ending:
            process.see_off()
        self._running, self._idle, self._spare, self._ending = [], {}, {}, []
        self._scratch.close()

    def _collect(self) -> None:
        """Takes what has come from all processes, so that no lane idles while the driver handles another's result."""
        for process in list(self._running):
            number = process.number  # its process may have another job by the time this one's result is returned
            result = self._progress(process)
            if result is not None:
                self._done.append((number, result))
        gone = [process for process in self._ending if process.has_gone]
        if gone:
            self._ending = [process for process in self._ending if process not in gone]
            for process in gone:
                process.clear()
            self._start_waiting()

    def _sleep(self, until: float) -> None:
        """Until a process has said something, has ended, or has to be looked at."""
        signs = [sign for process in self._running for sign in process.signs]
        signs += [process.signs[1] for process in self._ending]
        times = [self._deadline(process) for process in self._running] + [process.gone_by for process in self._ending]
        wait(signs, max(0.0, min([*times, until]) - time.monotonic()))

    # Which job runs when ----------------------------------------------------------------------------------------

    def _start_waiting(self) -> None:
        """Gives what waits to those who may have it now. On no lane a job overtakes another."""
        full = set[int | None]()
        for job in self._due():
            if job.lane not in full and (self._start(job) or self._hand_over(job)):
                del self._waiting[job.number]
            else:
                full.add(job.lane)

    def _due(self) -> list[Submitted]:
        """What may be started now: whatever waits, or, where a job has to be alone, that one when nothing else runs."""
        alone = [job for job in self._waiting.values() if job.alone]
        if any(process.given[0].alone for process in self._running) or (alone and self._running):
            return []
        if alone:
            self._building = alone[0].lane is None
        return alone[:1] or list(self._waiting.values())

    def _may_start(self, lane: int | None) -> bool:
        if not self._overlap and self._building != (lane is None):
            return False
        there = sum(process.lane == lane for process in (*self._running, *self._ending))
        return there < (self.builders if lane is None else 1)

    def _take_turns(self) -> None:
        """Without overlap: the other turn begins when nothing is left to do in this one."""
        if not self._overlap and self._waiting and not self._running and not self._ending:
            self._building = not self._building
            self._start_waiting()

    def _start(self, job: Submitted) -> bool:
        """Starts the job, in the lane's idle process or in a new one, if it may start."""
        if self._may_start(job.lane):
            self._make_way(job)
        if not self._may_start(job.lane):  # or not any more: a process that was not fit may take its time to go
            return False
        role = self._builder if job.lane is None else self._judges[job.lane]
        self._fresh += job.wants_fresh
        if job.wants_fresh and self._fresh % SAME_LAYOUT == 0:
            self._server.renew()
        process = self._idle.pop(job.lane, None) or self._spare.pop(job.lane, None)
        process = process or JobProcess(self._server, role, job.lane, self._scratch.folder())
        process.give(job)
        self._running.append(process)
        if self._overlap and job.wants_fresh and isinstance(job.job, RaceJob):
            self._spare[job.lane] = JobProcess(self._server, role, job.lane, self._scratch.folder())
        return True

    def _make_way(self, job: Submitted) -> None:
        """Ends the lane's process if the job cannot have it: two on one device would disturb each other."""
        idle = self._idle.get(job.lane)
        if idle is not None and (job.wants_fresh or not idle.can_take(job)):
            del self._idle[job.lane]
            self._end(idle)

    def _hand_over(self, job: Submitted) -> bool:
        """Gives the job to the lane's process while that does another, if it may have it in hand."""
        for process in self._running:
            if self._overlap and process.lane == job.lane and process.may_have_in_hand(job):
                process.give(job)
                return True
        return False

    def _release(self, process: JobProcess, spoiled: bool, again: bool = False) -> None:
        """The process's job is over, or is to be done again. Its process goes on, idles or is killed: then what it had
        not ended comes first in the next one. The next jobs start."""
        fresh = process.given[0].wants_fresh
        if not again:
            process.finish()
        if spoiled or fresh or not process.can_go_on:
            self._running.remove(process)
            self._waiting = {job.number: job for job in process.given} | self._waiting
            self._end(process)
        elif not process.given:
            self._running.remove(process)
            self._idle[process.lane] = process
        self._start_waiting()

    def _end(self, process: JobProcess) -> None:
        process.end()
        self._ending.append(process)

    # How a job ends ---------------------------------------------------------------------------------------------

    def _deadline(self, process: JobProcess) -> float:
        return process.since + self._deadlines.of(process.stage)

    def _progress(self, process: JobProcess) -> Result | None:
        """Reads what the process sent; the job's result once there is one."""
        alive = process.is_alive  # asked first: what was sent before the end is read
        try:
            message = process.answer()
        except (EOFError, OSError):
            return self._died(process)
        except Exception as error:  # not written by our code
            detail = f"{error} came through the pipe in {process.step}"
            return self._lost(process, _fault(process, "process.garbage", detail))
        if message is not None:
            return self._answered(process, message)
        if not alive:
            return self._died(process)
        return self._late(process) if time.monotonic() >= self._deadline(process) else None

    def _answered(self, process: JobProcess, message: Message) -> Result | None:
        if message.result is None:
            return self._raised(process, message)
        self._restarts = 0
        self._stamps |= isinstance(process.job, CalibrationJob) and process.clock.hears
        result = _timed_right(process, message.result, self._stamps)
        fault = next(filter(may_be_others, faults_in(result)), None)
        if fault is not None:
            return self._doubted(process, fault, result)
        self._release(process, Message(number=message.number, result=result).spoils)
        return result

    def _doubted(self, process: JobProcess, fault: Fault, found: Result | None = None) -> Result | None:
        """A fault that others may have brought about. On a machine that somebody disturbs it says nothing; else it is
        one where a second look, alone and in a fresh process, finds such a fault again. `found`: the result that holds
        it; None where the process was lost."""
        job = process.given[0]
        who = self._who_disturbs()
        if not who and not job.second_look:
            process.given[0] = job._replace(second_look=True)
            return self._again(process, alone=True, lost=False)
        if not who:
            if found is None:
                return self._blamed(process, fault)
            self._release(process, spoiled=True)
            return found
        detail = f"{fault.code}: {fault.detail}; but somebody disturbs: {who}"
        disturbed = Fault(verdict=Verdict.DISTURBED, code="measure.disturbed", detail=detail, case=fault.case)
        self._release(process, spoiled=True)
        if isinstance(job.job, JudgeJob | BuildJob):
            artifact = job.job.built.artifact if isinstance(job.job, JudgeJob) else None
            return Outcome(variant=job.job.variant, verdict=disturbed.verdict, artifact=artifact, fault=disturbed)
        return disturbed

    def _raised(self, process: JobProcess, message: Message) -> Result | None:
        """Something was raised in the process. Where a variant was loaded there, it may have come from that, whatever
        its class: it counts against the variant once it has come again in a fresh process."""
        job, begun = process.given[0], process.stage != "start"
        if not process.is_fresh or (job.runs_variants and begun and not job.losses):
            return self._again(process)
        if job.runs_variants and begun:
            _require_space()
            detail = message.complaint
            return self._blamed(process, _fault(process, "process.exception", f"{detail} in {process.step}, twice"))
        if message.raised is not None:
            self._release(process, spoiled=True)
            raise message.raised.error
        return self._failed(process, message.complaint)

    def _late(self, process: JobProcess) -> Result | None:
        detail = f"no end after {self._deadlines.of(process.stage):.0f} s in {process.step}; the process was killed"
        if process.is_fresh and process.stage == "start" and not isinstance(process.job, BuildJob):
            self._release(process, spoiled=True)
            raise InfrastructureError(f"the device does not answer: {detail}")
        return self._lost(process, _fault(process, "process.deadline", detail, Verdict.HUNG))

    def _died(self, process: JobProcess) -> Result | None:
        """The process ended, or closed its pipe, without a result."""
        if process.went_with_its_server():
            return self._lost_with_the_server(process)
        code = process.exit_code()
        if code == -signal.SIGKILL and not process.given[0].losses:
            return self._again(process)  # nobody here has sent it: the system perhaps, for want of memory
        if code is not None and code < 0:
            name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
            detail, system = f"signal {-code} ({name}) in {process.step}", SystemFault(signal=-code, name=name)
            return self._lost(process, _fault(process, "process.signal", detail, system=system))
        how = "its pipe was closed" if code is None else f"it exited with status {code}"
        system = SystemFault(exit_status=code)
        return self._lost(process, _fault(process, "process.exit", f"{how} in {process.step}", system=system))

    def _lost(self, process: JobProcess, fault: Fault) -> Result | None:
        """The ending of a job whose process was lost. Before a variant's code was loaded, it is not the variant's; of a
        race, it is one of its variants'.

        What crashes a process that judged others before it, or does not even begin there, is done again in a fresh one:
        it may be their doing.
        """
        begun = process.stage != "start"
        if not process.is_fresh and (fault.verdict == Verdict.CRASHED or not begun):
            return self._again(process)
        if not begun or not process.given[0].runs_variants:
            return self._failed(process, fault.detail)
        if may_be_others(fault):
            return self._doubted(process, fault)
        return self._blamed(process, fault)

    def _lost_with_the_server(self, process: JobProcess) -> Result | None:
        """The fork server has gone, and this process with it. If a variant was loaded in it, that may have done it; it
        has once it happens again while nothing else runs."""
        job = process.given[0]
        suspect = job.runs_variants and process.stage != "start"
        if suspect and job.alone and job.losses:
            detail = f"the fork server was killed or stopped in {process.step}, twice"
            return self._blamed(process, _fault(process, "process.server", detail))
        self._restarts += 1
        if self._restarts > RESTARTS * max(1, len(self._running)):
            raise InfrastructureError("the fork server ends again and again; the machine needs a look")
        return self._again(process, alone=suspect)

    def _again(self, process: JobProcess, alone: bool = False, lost: bool = True) -> Result | None:
        """The job is done once more, in a fresh process; `lost`: its process was."""
        job = process.given[0]
        process.given[0] = job._replace(losses=job.losses + lost, alone=job.alone or alone)
        self._release(process, spoiled=True, again=True)
        return None

    def _blamed(self, process: JobProcess, fault: Fault) -> Result:
        """The ending of a job whose variant cost its process; of a race, one of its variants did."""
        job = process.job
        assert isinstance(job, JudgeJob | RaceJob)
        self._restarts = 0
        ended = fault if isinstance(job, RaceJob) else _killed_by_its_variant(process, job, fault)
        self._release(process, spoiled=True)
        return ended

    def _failed(self, process: JobProcess, why: str) -> Result:
        """Our own machinery failed: an infra_error for a job of variants, an exception for any other."""
        job, tail = process.job, process.tail()
        self._release(process, spoiled=True)
        return not_done(job, why, tail)


def _fault(
    process: JobProcess, code: str, detail: str, verdict: Verdict = Verdict.CRASHED, system: SystemFault | None = None
) -> Fault:
    """What a process ended with, in the step that it was in."""
    return Fault(verdict=verdict, code=code, detail=detail, case=process.step, system=system)


def _timed_right(process: JobProcess, result: Result, stamps: bool) -> Result:
    """The result, without its times where the driver's clock denies them; `stamps`: or has heard nothing of them."""
    timed = bool(result.entrants) if isinstance(result, Heat) else isinstance(result, Outcome) and result.measurement
    fault = process.clock.fault(stamps) if timed else None
    if fault is None or not isinstance(result, Outcome):
        return fault or result
    gate = result.gate and result.gate.extended((), fault)
    return result.model_copy(update={"verdict": fault.verdict, "fault": fault, "measurement": None, "gate": gate})


def _require_space() -> None:
    """Raises DiskFullError where a disk that a process writes to is full. The driver looks for itself."""
    for folder in (config.cache_dir(), Path(tempfile.gettempdir())):
        if folder.exists() and shutil.disk_usage(folder).free < SPARE_BYTES:
            raise DiskFullError(f"no space left in {folder}; free some and run it again")


def _killed_by_its_variant(process: JobProcess, job: JudgeJob, fault: Fault) -> Outcome:
    """The outcome of a variant that cost its process."""
    return Outcome(
        variant=job.variant,
        verdict=fault.verdict,
        artifact=job.built.artifact,
        gate=_until_the_end(process, job.built.artifact, fault),
        fault=fault,
        seconds={"build": job.built.seconds},
        stderr_tail=process.tail(),
    )


def _until_the_end(process: JobProcess, artifact: Artifact, fault: Fault) -> GateReport | None:
    """What is known of the gate of a variant whose process was lost: the checks it had passed, and the one it was in.

    In a race or the audit it was in none. Of those passed what is not required is left out: it may have been
    unavailable.
    """
    checks = [
        CheckResult(code=code, status="pass", seconds=seconds)
        for code, seconds in process.checks.items()
        if code != effect.code
    ]
    if process.check is not None:
        lasted = time.monotonic() - process.check_since
        checks.append(CheckResult(code=process.check, status="fail", seconds=lasted))
    return GateReport(artifact=artifact.digest, required=(), checks=tuple(checks), fault=fault) if checks else None
