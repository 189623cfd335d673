"""The devices of a run, a lane each: calibration, conditions, the tie band, and which jobs are on which device."""

import math
from collections.abc import Iterator, Mapping, Sequence

from autotuner.race.tie import aa_ratio, band
from autotuner.run.executor import Beat, Executor, ask_all, sound_calibration
from autotuner.run.jobs import AnyJob, BuildJob, Built, CalibrationJob, JudgeJob, RaceJob, Result
from autotuner.store import Store
from autotuner.values.conditions import Conditions
from autotuner.values.outcome import Artifact, Calibration, Heat
from autotuner.values.variant import Variant

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
