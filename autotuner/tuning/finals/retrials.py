"""Trials of a study judged and timed again in fresh processes: what finals and validations have in common."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal, Self

from pydantic import Field

from autotuner.race.blocks import shortest_quarter
from autotuner.race.calibrate import slowed
from autotuner.race.confirm import FINAL_BLOCKS
from autotuner.race.plausible import moves_bytes
from autotuner.race.statistics import median_interval
from autotuner.race.tie import logs
from autotuner.run.executor import Beat, Executor, Heartbeat, ask, sound_calibration
from autotuner.run.jobs import BuildJob, Built, CalibrationJob, JudgeJob, RaceJob
from autotuner.store import OtherCache, Store, TrialRecord
from autotuner.tuning.finals.plan import PROVING
from autotuner.values.conditions import Conditions, fresh_seeds
from autotuner.values.errors import InfrastructureError, InputError
from autotuner.values.model import Model
from autotuner.values.outcome import Artifact, Calibration, Heat, Outcome
from autotuner.values.ratio import combined
from autotuner.values.verdict import Fault, Verdict

SECONDS = 120.0
"""Seconds that finals may take, unless the user says otherwise: calibration, gate, heats, proof."""
MANY = 1 / 12
"""The share of these in which the chosen one is launched as often as fits, 0..1: ten seconds, unless the user says
otherwise."""
OVER_S = 11.0
"""Seconds over the time in which what has begun may end; the proof has as long again, or a quarter of the time."""
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
    """When all should be over, on the monotonic clock: OVER_S later it ends, done or not."""
    known: Calibration | None = None
    """Of the same run, minutes ago."""

    def say(self, text: str, left_s: float | None = None, passing: bool = False) -> None:
        """Tells the listener of a step."""
        self.listen(Step(text=text, left_s=left_s, passing=passing))

    @contextmanager
    def leased(self) -> Iterator[Self]:
        """The same while the study's lease is held. Raises as `leased`."""
        with leased(self.store, self.study, self.beat, lambda: self.until + OVER_S) as beat:
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
        beat, why = self.beat, None
        if is_chosen and isinstance(beat, Heartbeat):  # without its proof the races before it confirm nothing
            until = self.until + OVER_S + max(OVER_S, PROVING * self.seconds)
            beat = Heartbeat(beat.renew, lambda: until)
        for _ in range(TRIES):
            outcome = ask(self.executor, job, beat)
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


# Heats: each a fresh process with one finalist and the baseline. The baseline is timed in processes of its own, too, in
# which no variant was ever loaded. They say whether it is a finalist that makes the baseline beside it slow.


WITNESS = "measure.witness"
STRIKES = 5
"""Times that the baseline is slow beside a finalist, and not by itself before and right after, until that is its doing.
Baselines of some ten microseconds differ from process to process, so two or three times may be chance."""
SLOW = 0.15
"""How much longer the baseline may take beside a variant than by itself, relative: a variant heats the device, and
leaves caches and threads in another state."""
HELD_UP = 0.5
"""Share of held up blocks from which on a heat says nothing of that."""


class FinalHeats:
    """Runs heats."""

    def __init__(self, trials: Retrials) -> None:
        """`trials`: calibrated."""
        self._trials, self._conditions = trials, trials.conditions
        self._witness: Heat | None = None
        """The last one."""
        self._held = Counter[str]()  # heats of each finalist, by its digest

    def draw(self, seeds: tuple[int, int, int, int]) -> None:
        """The inputs of the next heats are drawn from these seeds."""
        self._conditions = self._conditions.model_copy(update={"seeds": seeds})

    def witness(self) -> Heat:
        """The baseline alone. Raises InfrastructureError when it cannot be timed."""
        found = self._race()
        if isinstance(found, Fault):
            raise InfrastructureError(f"the baseline cannot be timed: {found.detail}")
        self._witness = found
        return found

    def of(self, artifact: Artifact) -> tuple[Heat | None, Fault | None]:
        """A finalist's heat, in a process that audits it after and judges it before, or in every second one in the end:
        what is only timed is timed so by whoever uses it. Or its fault, with the heat in which it showed, if any.

        Raises InfrastructureError when processes are lost again and again.
        """
        slower: list[float] = []
        while len(slower) < STRIKES:
            result = self._race(artifact)
            if isinstance(result, Fault):
                return None, result
            before = self._witness or self.witness()
            if slower_beside(result, before) <= SLOW or slower_beside(result, self.witness()) <= SLOW:
                return result, result.faults.get(0)
            slower.append(slower_beside(result, self.witness()))
        times = ", ".join(f"{100 * each:.0f}" for each in slower)
        detail = f"the baseline takes {times} % longer beside it than by itself right before and after"
        return None, Fault(verdict=Verdict.IMPOSSIBLE, code=WITNESS, detail=detail)

    def other_cache(self, artifact: Artifact) -> OtherCache | Fault | None:
        """What it takes in the other state of the caches, where that may be another answer: where moving a problem's
        bytes takes longer than its operations. A fault is the finalist's own. Raises as `of`."""
        conditions = self._conditions
        ceilings = conditions.ceilings
        if ceilings is None or not any(moves_bytes(problem, ceilings) for problem in conditions.problems):
            return None
        cache: Literal["cold", "warm"] = "warm" if conditions.cache == "cold" else "cold"
        heat = self._race(artifact, conditions=conditions.model_copy(update={"cache": cache, "baselines_us": ()}))
        if isinstance(heat, Fault) or heat.faults:
            return heat if isinstance(heat, Fault) else heat.faults[0]
        speedup = median_interval(combined(logs(heat, 0), conditions.objective)).speedup
        return OtherCache(cache=cache, speedup=speedup)

    def _race(self, *artifacts: Artifact, conditions: Conditions | None = None) -> Heat | Fault:
        """A heat, or a fault of the finalist's own."""
        why: object = None
        judged: Literal["before", "after"] | None = None
        for each in artifacts:
            judged = "after" if self._held[each.digest] % 2 else "before"
            self._held[each.digest] += 1
        under = conditions or self._conditions
        for _ in range(TRIES):
            job = RaceJob(artifacts=artifacts, conditions=under, blocks=FINAL_BLOCKS, judged=judged, fresh=True)
            result = ask(self._trials.executor, job, self._trials.beat)
            if isinstance(result, Heat) and result.held_up >= HELD_UP:
                result = slowed(result.baseline_us, under.baselines_us) or result
            if isinstance(result, Heat) or (isinstance(result, Fault) and result.verdict.judges):
                return result
            why = result.detail if isinstance(result, Fault) else result
        raise InfrastructureError(f"the finals cannot be raced: {why}")


def slower_beside(heat: Heat, witness: Heat) -> float:
    """How much longer the baseline took beside a variant than by itself, relative: on the problem where it is most, by
    the shorter samples. 0 where either was held up too often to say."""
    if max(heat.held_up, witness.held_up) >= HELD_UP:
        return 0.0
    pairs = zip(_short(heat), _short(witness), strict=True)
    return max(beside / alone - 1 for beside, alone in pairs)


def _short(heat: Heat) -> list[float]:
    """Microseconds of the baseline, by its shorter samples; one a problem."""
    waited = heat.baseline_waited_us or [()] * len(heat.baseline_us)
    return [shortest_quarter(us, lost) for us, lost in zip(heat.baseline_us, waited, strict=True)]
