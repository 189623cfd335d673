"""What is in flight: the variants between their proposal and their outcome.

A variant is built, waits until a device needs it, and is judged there. As late as that it is known whether its program
was measured meanwhile: then it shares that measurement.
"""

import math
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from optuna.trial import Trial

from autotuner.run.executor import Executor
from autotuner.run.jobs import BuildJob, Built, Result, faults_in
from autotuner.tuning.run.lanes import DeviceLane, DeviceLanes
from autotuner.tuning.run.outcomes import Outcomes
from autotuner.values import codes
from autotuner.values.conditions import Conditions
from autotuner.values.errors import InfrastructureError
from autotuner.values.outcome import Artifact, Outcome
from autotuner.values.variant import Variant
from autotuner.values.verdict import Fault, Verdict

AHEAD = 2
"""Variants at most that are on a device or next in its queue. More would be judged by knowledge that is too old."""


class Flight(NamedTuple):
    """A trial without an outcome yet."""

    trial: Trial
    variant: Variant
    lane: DeviceLane | None = None
    """The device that judges it; None before."""
    program: str = ""
    """Known once it is built."""
    built: Built | None = None
    incumbent: Artifact | None = None
    """What it races against on the device."""
    again: bool = False
    """It is judged a second time, against nobody: the first time an incumbent may have cost it its process."""


class Landed(NamedTuple):
    """A trial with its outcome, and the lane whose session it is recorded under."""

    trial: Trial
    outcome: Outcome
    lane: DeviceLane


class Flights:
    """All variants in flight."""

    def __init__(self, executor: Executor, lanes: DeviceLanes, outcomes: Outcomes) -> None:
        """`outcomes`: those of the study so far."""
        self._executor, self._lanes, self._outcomes = executor, lanes, outcomes
        self._under_way: dict[int, Flight] = {}
        """By the number of the job that the executor has of it."""
        self._built: list[tuple[Flight, Built]] = []
        """Between their two jobs, the oldest first."""
        self._hearings: dict[int, Artifact] = {}
        """Incumbents that are judged again, by the number of that job."""
        self._suspicions: Counter[str] = Counter()
        """How often an incumbent was suspected, by its artifact's digest."""
        self._convicted: list[tuple[Artifact, Fault]] = []

    def __len__(self) -> int:
        return len(self._under_way) + len(self._built)

    def __contains__(self, variant: Variant) -> bool:
        flights = (*self._under_way.values(), *(flight for flight, _ in self._built))
        return any(flight.variant == variant for flight in flights)

    @property
    def stages(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The trials that are built now, and those that are on a device or next in its queue."""
        building = sorted(flight.trial.number for flight in self._under_way.values() if flight.lane is None)
        judging = (flight.trial.number for _, flight in sorted(self._under_way.items()) if flight.lane is not None)
        return tuple(building), tuple(judging)

    @property
    def are_under_way(self) -> bool:
        """Whether the executor has a job of any."""
        return bool(self._under_way or self._hearings)

    def start(self, trial: Trial, variant: Variant, conditions: Conditions) -> None:
        """Submits the build of a variant."""
        number = self._executor.submit(BuildJob(variant=variant, conditions=conditions))
        self._under_way[number] = Flight(trial, variant)

    def feed(self) -> Iterator[Landed]:
        """Hands built variants to the devices, no sooner than these need them: whatever is known by then counts.

        In the order in which they were proposed; while nothing leads, what was proposed before is waited for, as what
        builds fastest is often the slowest. A program that was measured is not measured again: its outcome is given
        here. One that is being judged is waited for.
        """
        building = min(self.stages[0], default=math.inf)
        waiting, self._built = sorted(self._built, key=lambda each: each[0].trial.number), []
        for flight, built in waiting:
            program = built.artifact.program_hash
            original = self._outcomes.measured(program)
            incumbent = None if flight.again else self._outcomes.opponent()
            lane = self._free(alone=incumbent is None)
            if original is not None:
                yield Landed(flight.trial, _duplicate(built, original), self._lanes.first)
            elif self._outcomes.opponent() is None and flight.trial.number > building:
                self._built.append((flight, built))
            elif lane is not None and all(each.program != program for each in self._under_way.values()):
                best = incumbent.artifact if incumbent is not None else None
                ratios = () if best is None else self._outcomes.opponent_ratios()
                number = self._lanes.judge(lane, built, best, ratios)
                self._under_way[number] = flight._replace(lane=lane, program=program, built=built, incumbent=best)
            else:
                self._built.append((flight, built))

    def _free(self, alone: bool) -> DeviceLane | None:
        """The lane with the fewest variants, if it can take one more. `alone`: only if it has none. Where nothing leads
        yet whatever is measured is promoted, audited and soaked: the next one should rather race against the first."""
        has = Counter(flight.lane.number for flight in self._under_way.values() if flight.lane is not None)
        lane = min(self._lanes, key=lambda each: has[each.number])
        return lane if has[lane.number] < (1 if alone else AHEAD) else None

    def take(self, number: int, result: Result) -> Landed | None:
        """Takes in the result of a variant's job; its outcome, or None when it was built and is still to be judged.

        Raises InfrastructureError for a result that is neither.
        """
        if number in self._hearings:
            self._heard(self._hearings.pop(number), result)
            return None
        flight = self._under_way.pop(number)
        lane = flight.lane or self._lanes.first
        if isinstance(result, Built):
            self._built.append((flight, result))
            return None
        if not isinstance(result, Outcome):
            raise InfrastructureError(f"a variant's job gave no outcome: {result}")
        if flight.built is not None and flight.incumbent is not None and lost_in_its_race(result):
            self.suspect(flight.incumbent, lane)
            self._built.append((Flight(flight.trial, flight.variant, again=True), flight.built))
            return None
        return Landed(flight.trial, result, lane)

    def suspect(self, incumbent: Artifact, lane: DeviceLane) -> None:
        """A race against it cost a process. It is judged again, alone, and nothing races against it meanwhile; nor any
        more when this comes a second time, whatever was found."""
        self._outcomes.suspended.add(incumbent.digest)
        self._suspicions[incumbent.digest] += 1
        if self._suspicions[incumbent.digest] == 1:
            self._hearings |= dict.fromkeys(self._lanes.hear(lane, incumbent), incumbent)

    def _heard(self, suspect: Artifact, result: Result) -> None:
        """An incumbent was judged again, or raced itself. The reason that comes first is the one that is kept."""
        found = [(suspect, fault) for fault in faults_in(result) if fault.verdict.judges]
        self._convicted += found
        self._suspicions[suspect.digest] += len(found)
        if self._suspicions[suspect.digest] == 1 and suspect not in self._hearings.values():
            self._outcomes.suspended.discard(suspect.digest)

    def convicted(self) -> list[tuple[Artifact, Fault]]:
        """Incumbents in which a fault was found since this was asked last."""
        found, self._convicted = self._convicted, []
        return found


def lost_in_its_race(outcome: Outcome) -> bool:
    """Whether the outcome, of a variant that had passed the gate, may be the doing of what it raced against: that could
    not be launched, or the process was lost."""
    fault, gate = outcome.fault, outcome.gate
    if fault is not None and fault.code == codes.INCUMBENT:
        return True
    return outcome.verdict in (Verdict.CRASHED, Verdict.HUNG) and gate is not None and gate.failed is None


def deadly(variant: Variant) -> Outcome:
    """The outcome of a variant that has killed its drivers."""
    detail = "three drivers were killed while it was judged, in the last one nothing else was in flight"
    fault = Fault(verdict=Verdict.CRASHED, code="process.driver", detail=detail)
    return Outcome(variant=variant, verdict=Verdict.CRASHED, fault=fault)


def _duplicate(built: Built, original: Outcome) -> Outcome:
    """The outcome of a variant whose program is the original's: it shares the measurement."""
    assert original.artifact is not None  # what was measured was built
    return Outcome(
        variant=built.artifact.variant,
        verdict=Verdict.DEDUPLICATED,
        artifact=built.artifact,
        measurement=original.measurement,
        original=original.artifact.digest,
        seconds={"build": built.seconds},
        build_began=built.began,
    )
