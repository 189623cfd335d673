"""What a job's process says to the driver, and how the driver reads it without trusting it.

    length (4 bytes) | key of the process (16 bytes) | JSON of a message

A variant can write whatever it likes into the pipe, and may have found the key. What comes is data that the models
accept, or the end of its process; no code in it runs. And it must fit what the driver knows of the job.
"""

import os
from collections.abc import Collection
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Self

from pydantic import Field, ValidationError, field_validator

from autotuner.gate.recheck import AUDIT
from autotuner.race.tie import bounds
from autotuner.run.jobs import AnyJob, BuildJob, Built, CalibrationJob, JudgeJob, RaceJob, Result
from autotuner.values import codes, errors
from autotuner.values.errors import AutotunerError
from autotuner.values.model import Model
from autotuner.values.outcome import Calibration, Heat, Outcome
from autotuner.values.verdict import Fault, Verdict

LARGEST_MESSAGE = 1 << 24
"""Bytes. The largest outcome that is known has a tenth of it."""
LONGEST_STEP, MOST_STEPS = 4000, 100_000
"""Characters of a step, and steps of a job: a launch of a soak is one. Reading on, the driver would do nothing else."""
ERRORS: dict[str, type[AutotunerError]] = {
    name: each for name, each in vars(errors).items() if isinstance(each, type) and issubclass(each, AutotunerError)
}
"""By name."""
SPOILING = (
    Verdict.CRASHED,
    Verdict.HUNG,
    Verdict.CORRUPTING,
    Verdict.NONDETERMINISTIC,
    Verdict.LAUNCH_FAILED,
    Verdict.IMPOSSIBLE,
)
"""After these verdicts nothing is certain about the process that gave them."""


class Raised(Model):
    """An error of this package that was raised there."""

    kind: str
    text: str

    @classmethod
    def of(cls, error: AutotunerError) -> Self:
        """Of a class of another package it is the nearest one that is ours."""
        kind = next(each for each in type(error).__mro__ if ERRORS.get(each.__name__) is each)
        return cls(kind=kind.__name__, text=str(error))

    @field_validator("kind")
    @classmethod
    def _is_ours(cls, kind: str) -> str:
        if kind not in ERRORS:
            raise ValueError("there is no such error")
        return kind

    @property
    def error(self) -> AutotunerError:
        """The same error, to be raised here."""
        return ERRORS[self.kind](self.text)


class Message(Model):
    """The step that begins in the job with that number, or how it ended."""

    number: int
    step: str | None = Field(default=None, max_length=LONGEST_STEP)
    result: Result | None = None
    raised: Raised | None = None
    failure: str | None = None

    @property
    def spoils(self) -> bool:
        """Whether the process, having ended a job like this, must do no other."""
        if self.result is None:
            return True
        if not isinstance(self.result, Outcome | Fault):
            return False
        fault = self.result.fault if isinstance(self.result, Outcome) else self.result
        full = fault is not None and fault.code == codes.FULL  # the process gives back what a variant may have taken
        return full or self.result.verdict in SPOILING

    @property
    def complaint(self) -> str:
        """Why there is no result."""
        return self.failure or (f"{self.raised.kind}: {self.raised.text}" if self.raised else "no result came")


def send(pipe: Connection, key: bytes, message: Message) -> None:
    """Sends a message that an Inbox with the key will read."""
    pipe.send_bytes(key + message.model_dump_json().encode())


class Inbox:
    """The messages of one process. Reading never waits."""

    def __init__(self, pipe: Connection, key: bytes) -> None:
        os.set_blocking(pipe.fileno(), False)
        self._pipe, self._key = pipe, key
        self._bytes = bytearray()

    @property
    def is_empty(self) -> bool:
        """Nothing has come that was not read, not even the end."""
        return not self._bytes and not self._pipe.poll()

    def read(self) -> Message | None:
        """The next message; None when there is none yet. Raises EOFError at the end, ValueError for anything else."""
        while True:
            frame = self._frame()
            if frame is not None:
                return self._message(frame)
            try:
                more = os.read(self._pipe.fileno(), 1 << 16)
            except BlockingIOError:
                return None
            if not more:
                raise EOFError
            self._bytes += more

    def _message(self, frame: bytes) -> Message:
        if not frame.startswith(self._key):
            raise ValueError(f"{len(frame)} bytes that are no message")
        if rb"\u0000" in frame:
            raise ValueError("a forged message (with NUL, which not every database takes)")
        try:
            return Message.model_validate_json(frame[len(self._key) :])
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"])) or "all of it"
            raise ValueError(f"a forged message ({where}: {first['msg']})") from None

    def _frame(self) -> bytes | None:
        """The next whole frame as Connection.send_bytes writes it: its length in four bytes, then its bytes."""
        if len(self._bytes) < 4:
            return None
        size = int.from_bytes(self._bytes[:4], "big", signed=True)
        if not 0 <= size <= LARGEST_MESSAGE:
            raise ValueError(f"a message of {size} bytes")
        if len(self._bytes) < 4 + size:
            return None
        frame = bytes(self._bytes[4 : 4 + size])
        del self._bytes[: 4 + size]
        return frame


def misfit(job: AnyJob, result: Result, heard: Collection[str]) -> str | None:
    """Why a result cannot be that of the job, in words; None where it can. `heard`: the first words of the steps that
    were announced."""
    if isinstance(job, JudgeJob) and isinstance(result, Outcome):
        return _misfit_of_outcome(job, result, heard)
    if isinstance(job, RaceJob) and isinstance(result, Heat):
        same = result.entrants == tuple(each.digest for each in job.artifacts)
        same = same and result.baselines == job.conditions.baselines
        return _uneven(result) if same else "a heat of other entrants"
    fits = {BuildJob: (Built, Outcome), CalibrationJob: (Calibration,), RaceJob: (Fault,)}
    return None if isinstance(result, fits.get(type(job), ())) else "a result of another kind of job"


def _uneven(heat: Heat) -> str | None:
    """What it has no blocks of, each with all sides, in words."""
    with suppress(IndexError, ValueError):
        found = [bounds(heat, place) for place in range(len(heat.entrants)) if place not in heat.faults]
        if all(heat.baseline_us) and {len(heat.baseline_us), *(len(low) for low, _ in found)} == {len(heat.baselines)}:
            return None
    return "a heat with blocks that lack a side"


def _misfit_of_outcome(job: JudgeJob, outcome: Outcome, heard: Collection[str]) -> str | None:
    built, gate, measured = job.built.artifact, outcome.gate, outcome.measurement
    if outcome.variant != job.variant or outcome.artifact != built or (gate and gate.artifact != built.digest):
        return "an outcome of another variant"
    passed = {check.code for check in gate.checks if check.status == "pass"} - {AUDIT} if gate else set[str]()
    before = job.rejected.gate if job.rejected else None
    known = {check.code for check in before.checks} if before else set[str]()
    if unheard := sorted(passed - {*heard} - known):
        return f"an outcome with a pass of {unheard[0]}, which was never begun"
    if outcome.verdict.has_latency and not (gate and gate.passed and measured and "measure" in heard):
        return "a latency without a passed gate and a race"
    incumbent = job.incumbent.digest if job.incumbent else None
    timings = measured.timings if measured else ()
    raced = [(each.variant_us, each.baseline_us, each.incumbent_us or each.baseline_us) for each in timings]
    if measured and (
        tuple(timing.problem for timing in timings) != job.conditions.problems
        or measured.incumbent != incumbent
        or any(len({*map(len, rows)}) > 1 or not rows[0] for rows in raced)
    ):
        return "a race on other problems, against another incumbent, or of blocks that lack a side"
    return None
