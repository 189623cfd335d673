"""What is in flight: the variants between their proposal and their outcome. And the devices of a run, a lane each:
calibration, conditions, the tie band, and which jobs are on which device.

A variant is built, waits until a device needs it, and is judged there. As late as that it is known whether its program
was measured meanwhile: then it shares that measurement.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from optuna.trial import Trial

from autotuner.race.tie import aa_ratio, band
from autotuner.run.executor import Beat, Executor, ask_all, sound_calibration
from autotuner.run.jobs import AnyJob, BuildJob, Built, CalibrationJob, JudgeJob, RaceJob, Result, faults_in
from autotuner.store import Store
from autotuner.tuning.run.outcomes import Outcomes
from autotuner.values import codes
from autotuner.values.conditions import Conditions
from autotuner.values.errors import InfrastructureError
from autotuner.values.outcome import Artifact, Calibration, Heat, Outcome
from autotuner.values.variant import Variant
from autotuner.values.verdict import Fault, Verdict

AA_EVERY = 20
"""Variants judged on a lane between two A/A races there."""
AA_FIRST = 6
"""Before the first one: what noise is left has to be known in a short run too."""
AA_BLOCKS = 40
"""Blocks of an A/A race."""


class DeviceLane:
    """A device, its session in the store and its jobs."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.session = 0
        """The number of its session in the store."""
        self.racing: int | None = None
        """The number of the A/A race under way."""
        self.raced: Artifact | None = None
        """What raced itself there last."""
        self.since_aa = AA_EVERY - AA_FIRST
        """Variants handed to it since the last A/A race; as if the first were due soon."""
        self.conditions: Conditions
        """Once it is calibrated."""

    def conditions_with(self, tie: float) -> Conditions:
        """The conditions with the tie band as it is by now."""
        return self.conditions.model_copy(update={"tie": tie})


class DeviceLanes:
    """All devices of a run. The best variant races against itself on each of them from time to time: the tie band is
    as wide as all these A/A races say."""

    def __init__(
        self,
        store: Store,
        executor: Executor,
        study: str,
        conditions: Conditions,
        environments: Sequence[Mapping[str, str]],
    ) -> None:
        """`conditions`: those of the study. `environments`: what the numbers of each lane depend on."""
        self._store, self._executor, self._study, self._conditions = store, executor, study, conditions
        self._environments = environments
        self._lanes = [DeviceLane(number) for number in range(executor.lanes)]
        self._aa: list[float] = []
        """What each A/A race of the run came to."""
        self.tie = band([])
        """How wide a tie is, relative."""

    def __len__(self) -> int:
        return len(self._lanes)

    def __iter__(self) -> Iterator[DeviceLane]:
        return iter(self._lanes)

    @property
    def first(self) -> DeviceLane:
        """The lane that calibrates the baselines for all."""
        return self._lanes[0]

    @property
    def is_racing(self) -> bool:
        """Whether an A/A race is under way."""
        return any(lane.racing is not None for lane in self._lanes)

    def calibrate(self, beat: Beat, ahead: Sequence[Variant] = (), seconds: float = math.inf) -> list[Calibration]:
        """Calibrates every lane, side by side. All race against the baselines that the first one chose. `ahead`: these
        are built meanwhile, and lie in the cache then. `seconds`: that the run has. Raises OracleError or
        InfrastructureError."""
        self._conditions = self._conditions.model_copy(update={"seconds": seconds if seconds < math.inf else None})
        conditions = self._conditions
        jobs: list[tuple[AnyJob, int]] = [(CalibrationJob(conditions=conditions), lane.number) for lane in self._lanes]
        jobs += [(BuildJob(variant=variant, conditions=self._conditions), 0) for variant in ahead]
        found = [sound_calibration(result) for result in ask_all(self._executor, jobs, beat)[: len(self._lanes)]]
        pinned = {"baselines": found[0].baselines, "rivals": found[0].rivals}
        return [each.model_copy(update=pinned) for each in found]

    def begin(self, found: Sequence[Calibration]) -> None:
        """Starts the session of every lane with its calibration."""
        for lane, calibration in zip(self._lanes, found, strict=True):
            lane.conditions = self._conditions.model_copy(update={**calibration.pinned, "tie": self.tie})
            environment, builders = self._environments[lane.number], self._executor.builders
            lane.session = self._store.start_session(self._study, calibration, environment, lane.number, builders)

    def finish(self) -> None:
        """Ends the sessions in good order."""
        for lane in self._lanes:
            if lane.session:
                self._store.finish_session(lane.session)

    def judge(self, lane: DeviceLane, built: Built, best: Artifact | None, ratios: tuple[float, ...]) -> int:
        """Submits the judging of a variant, and before it the A/A race of the best one when it is due; the number of
        the judging job. `ratios`: ln(t / t_baseline) of the best one, one a problem."""
        if best is not None and lane.since_aa >= AA_EVERY and lane.racing is None:
            race = RaceJob(artifacts=(best, best), conditions=lane.conditions_with(self.tie), blocks=AA_BLOCKS)
            lane.since_aa, lane.racing, lane.raced = 0, self._executor.submit(race, lane.number), best
        conditions = lane.conditions_with(self.tie)
        job = JudgeJob(built=built, conditions=conditions, incumbent=best, incumbent_ratios=ratios)
        lane.since_aa += 1
        return self._executor.submit(job, lane.number)

    def hear(self, lane: DeviceLane, suspect: Artifact) -> list[int]:
        """Submits that an incumbent races itself, where it may behave as it does beside others, and is judged again,
        alone and at length, its memory under a sanitizer where there is one. The numbers of the jobs."""
        conditions, built = lane.conditions_with(self.tie), Built(artifact=suspect, seconds=0.0)
        race = RaceJob(artifacts=(suspect, suspect), conditions=conditions, blocks=AA_BLOCKS, fresh=True)
        jobs: list[AnyJob] = [race, JudgeJob(built=built, conditions=conditions, soak="chosen", fresh=True)]
        return [self._executor.submit(job, lane.number) for job in jobs]

    def racing(self, number: int) -> DeviceLane | None:
        """The lane whose A/A race the job is."""
        return next((lane for lane in self._lanes if lane.racing == number), None)

    def raced(self, lane: DeviceLane, result: Result) -> bool:
        """Takes in the result of a lane's A/A race; whether the tie band was found anew. One that could not be held
        says nothing; the next one is soon."""
        lane.racing = None
        if not isinstance(result, Heat) or result.faults:
            return False
        self._store.record_heat(self._study, "aa", result, session_id=lane.session)
        self._aa.append(aa_ratio(result, self._conditions.objective))
        self.tie = band(self._aa)
        return True


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
