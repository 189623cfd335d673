"""Trials of a study judged and timed again in fresh processes: what finals and validations have in common."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Self

from pydantic import Field

from autotuner.run.executor import Beat, Executor, Heartbeat, ask, sound_calibration
from autotuner.run.jobs import BuildJob, Built, CalibrationJob, JudgeJob
from autotuner.store import Store, TrialRecord
from autotuner.values.conditions import Conditions, fresh_seeds
from autotuner.values.errors import InfrastructureError, InputError
from autotuner.values.model import Model
from autotuner.values.outcome import Calibration, Outcome
from autotuner.values.verdict import Fault

SECONDS = 120.0
"""Seconds that finals may take, unless the user says otherwise: calibration, gate, heats, proof."""
MANY = 1 / 12
"""The share of these in which the chosen one is launched as often as fits, 0..1: ten seconds, unless the user says
otherwise."""
TRIES = 5
"""Tries of a process that is lost for reasons that are nobody's, or beside which the device throttles."""
GATE_BLOCKS = 2
"""Timed blocks where a trial is judged again: G7 needs some. Heats say how fast it is."""


class Step(Model):
    """What is done now, for a person."""

    text: str
    left_s: float | None = Field(default=None, description="seconds that the finals will still take, about")
    passing: bool = Field(default=False, description="a detail of the step before: of interest while it lasts")


Listener = Callable[[Step], None]


@contextmanager
def leased(store: Store, study: str, beat: Beat, until: Callable[[], float] = lambda: math.inf) -> Iterator[Heartbeat]:
    """Holds the lease of a study; what renews it, calls `beat` as often and raises OutOfTimeError at the moment
    `until`, on the monotonic clock. Raises LeaseLostError or StoreError."""
    with store.lease(study) as lease:

        def renew() -> None:
            lease.beat()
            beat()

        yield Heartbeat(renew, until)


@dataclass(frozen=True)
class Retrials:
    """A study, where its trials are judged again, and under what conditions."""

    store: Store
    study: str
    conditions: Conditions
    """The study's, whose seeds are not used; once calibrated, with the baselines."""
    executor: Executor
    environment: Mapping[str, str]
    listen: Listener = lambda _: None
    seconds: float = SECONDS
    """That all may take, but for what is done in any case."""
    beat: Beat = lambda: None
    """Is called again and again; what it raises ends all."""
    until: float = math.inf
    """When all ends, done or not, on the monotonic clock."""
    known: Calibration | None = None
    """Of the same run, minutes ago."""

    def say(self, text: str, left_s: float | None = None, passing: bool = False) -> None:
        """Tells the listener of a step."""
        self.listen(Step(text=text, left_s=left_s, passing=passing))

    @contextmanager
    def leased(self) -> Iterator[Self]:
        """The same while the study's lease is held. Raises as `leased`."""
        with leased(self.store, self.study, self.beat, lambda: self.until) as beat:
            yield replace(self, beat=beat)

    def calibrated(self, **others: object) -> Self:
        """The same with the baselines, and with seeds that the search has not seen. `others`: further conditions that
        are not the study's.

        Raises OracleError or InfrastructureError.
        """
        conditions = self.conditions.model_copy(update={"seeds": fresh_seeds(), **others})
        found = None if others else self.known
        if found is None:
            self.say("timing the baselines")
            job = CalibrationJob(conditions=conditions.model_copy(update={"seconds": self.seconds}))
            found = sound_calibration(ask(self.executor, job, self.beat))
        return replace(self, conditions=conditions.model_copy(update=found.pinned))

    def judged(self, number: int, built: Built, is_chosen: bool = False) -> Outcome:
        """What the gate finds on the seeds of these conditions, with a longer soak; with the longest where the trial is
        chosen.

        No latency of this race is used: the gate says the same on a busy machine. Raises InfrastructureError when the
        machine does not let it be judged.
        """
        short = {"min_blocks": GATE_BLOCKS, "max_blocks": GATE_BLOCKS}
        job = JudgeJob(
            built=built,
            conditions=self.conditions.model_copy(update=short),
            soak="chosen" if is_chosen else "finalist",
            many_s=MANY * self.seconds,
            fresh=is_chosen,
        )
        why: object = None
        for _ in range(TRIES):
            outcome = ask(self.executor, job, self.beat)
            if not isinstance(outcome, Outcome):
                raise InfrastructureError(f"judging trial {number} gave no outcome: {outcome}")
            if outcome.verdict.judges:
                return outcome
            why = outcome.fault.detail if outcome.fault is not None else outcome.verdict.value
        raise InfrastructureError(f"trial {number} of {self.study} cannot be judged: {why}")

    def refuse(self, number: int, fault: Fault, where: str, is_as_searched: bool = True) -> None:
        """Says that a trial is out. If this is the very binary of the search, and the fault is its own, it is revoked;
        `where` it failed is part of the reason."""
        said, end = f"{fault.code}, {fault.detail}", "left out"
        if is_as_searched and fault.verdict.judges:
            self.store.revoke(self.study, number, f"{where}: {said}")
            end = "revoked"
        self.say(f"trial {number}: {said}; {end}")


def rebuilt(executor: Executor, trial: TrialRecord, conditions: Conditions, beat: Beat | None = None) -> Built:
    """A trial's variant, built as the search has built it. Raises InputError where it cannot be any more."""
    made, searched = ask(executor, BuildJob(variant=trial.outcome.variant, conditions=conditions), beat), trial.outcome
    if isinstance(made, Built) and searched.artifact is not None and made.artifact.digest == searched.artifact.digest:
        return made
    raise InputError(
        f"trial {trial.number} of {trial.study} cannot be built as it was: its sources or its compiler have changed"
        " since it passed the gate; tune again"
    )
