"""The devices of a run, a lane each: calibration, conditions, the tie band, and which jobs are on which device."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from autotuner.race.tie import aa_ratio, band
from autotuner.run.executor import Beat, Executor, ask_all, sound_calibration
from autotuner.run.jobs import Built, CalibrationJob, JudgeJob, RaceJob, Result
from autotuner.store import Store
from autotuner.values.conditions import Conditions
from autotuner.values.outcome import Artifact, Calibration, Heat, Measurement, Outcome
from autotuner.values.verdict import Fault, Verdict

AA_EVERY = 20
"""Variants judged on a lane between two A/A races there."""
AA_BLOCKS = 40
"""Blocks of an A/A race."""
LOOK_BLOCKS = 9
"""Blocks of a look at what the baselines take."""
WARMED = 0.5
"""In units of the drift: how far the usual time beside variants, which warm the device, may lie above the undisturbed
one. What is beyond is not the variants' doing."""


class DeviceLane:
    """A device, its session in the store and its jobs."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.session = 0
        """The number of its session in the store."""
        self.racing: int | None = None
        """The number of the A/A race under way."""
        self.since_aa = 0
        """Variants handed to it since the last A/A race."""
        self._conditions: Conditions
        self._calibration: Calibration
        self._most_us: list[float] = []
        """Microseconds that the usual time of the baseline is at most, one a problem."""
        self._speeds: list[tuple[float, float]] = []
        """What the baseline takes undisturbed, microseconds, at least and at most, one a problem: one number twice, but
        of a baseline that has two speeds."""
        self._baseline_us: list[list[float]] = []
        """Microseconds of the baseline on each problem, at calibration and in every race since; sorted, as a median is
        taken of it for every variant."""

    def calibrated(
        self, conditions: Conditions, calibration: Calibration, calm_us: Sequence[float], slow_us: Sequence[float]
    ) -> None:
        """Starts with these conditions and what the baseline took at calibration. `calm_us`: what it takes undisturbed,
        and `slow_us` at most, one a problem."""
        self._conditions, self._calibration = conditions, calibration
        self._speeds = list(zip(calm_us, slow_us, strict=True))
        self._baseline_us = [[us] for us in calibration.baseline_us]
        warm = 1 + WARMED * calibration.drift
        self._most_us = [max(us, warm * calm) for us, calm in zip(calibration.baseline_us, calm_us, strict=True)]

    @property
    def is_disturbed(self) -> bool:
        """Whether it was calibrated on a disturbed machine."""
        return self._calibration.disturbed is not None

    def note_baseline(self, measurement: Measurement | None) -> None:
        """Takes in what the baseline took beside a variant."""
        timings = measurement.timings if measurement is not None else ()
        for problem, timing in zip(self._baseline_us, timings, strict=False):
            insort(problem, median(timing.baseline_us))

    def conditions_with(self, tie: float) -> Conditions:
        """The conditions with the tie band and the thermometer as they are by now.

        The baseline beside variants is not what it is alone: they heat the device, or lower its clocks. So the median
        over the session is what a race is compared with, but no more than variants alone can make of it: a long
        disturbance that begins slowly must not become what is usual. A baseline may be as fast as it ever was. Where
        the calibration itself was disturbed there is no thermometer: what is measured is marked.
        """
        if self.is_disturbed:
            return self._conditions.model_copy(update={"tie": tie})
        usual = tuple(min(median(us), most) for us, most in zip(self._baseline_us, self._most_us, strict=True))
        least = tuple(min(us, calm) for us, (calm, _) in zip(usual, self._speeds, strict=True))
        most = tuple(max(us, slow) for us, (_, slow) in zip(usual, self._speeds, strict=True))
        return self._conditions.model_copy(update={"tie": tie, "baseline_us": least, "slow_baseline_us": most})

    def marked(self, outcome: Outcome) -> Outcome:
        """The outcome as it is recorded: a latency that was found on a disturbed machine is none."""
        why, found = self._calibration.disturbed, outcome.verdict
        doubtful = why is not None and found.has_latency and found != Verdict.DEDUPLICATED
        return outcome.doubted(why or "") if doubtful else outcome


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
        self._pinned: tuple[str, ...] = ()
        """The baselines that the last calibration chose."""
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

    def calibrate(self, beat: Beat) -> list[Calibration]:
        """Calibrates every lane, side by side. All race against the baselines that the first one chose. Raises
        OracleError or InfrastructureError."""
        jobs = [(CalibrationJob(conditions=self._conditions), lane.number) for lane in self._lanes]
        found = [sound_calibration(result) for result in ask_all(self._executor, jobs, beat)]
        self._pinned = found[0].baselines
        return [each.model_copy(update={"baselines": self._pinned}) for each in found]

    def begin(self, found: Sequence[Calibration], calm_us: Sequence[float], slow_us: Sequence[float]) -> None:
        """Starts the session of every lane with its calibration. `calm_us`: what the baselines take undisturbed, and
        `slow_us` at most, where they have two speeds."""
        for lane, calibration in zip(self._lanes, found, strict=True):
            update = {"baselines": calibration.baselines, "ceilings": calibration.ceilings, "tie": self.tie}
            lane.calibrated(self._conditions.model_copy(update=update), calibration, calm_us, slow_us)
            environment, builders = self._environments[lane.number], self._executor.builders
            lane.session = self._store.start_session(self._study, calibration, environment, lane.number, builders)

    def look(self, beat: Beat) -> list[Sequence[float]] | str:
        """What the pinned baselines take now on every lane, microseconds, one a problem; or why that cannot be told."""
        conditions = self._conditions.model_copy(update={"baselines": self._pinned})
        job = RaceJob(artifacts=(), conditions=conditions, blocks=LOOK_BLOCKS)
        found = ask_all(self._executor, [(job, lane.number) for lane in self._lanes], beat)
        faults = [result.detail for result in found if isinstance(result, Fault)]
        if faults:
            return faults[0]
        return [[median(us) for us in result.baseline_us] for result in found if isinstance(result, Heat)]

    def finish(self) -> None:
        """Ends the sessions in good order."""
        for lane in self._lanes:
            self._store.finish_session(lane.session)

    def judge(self, lane: DeviceLane, built: Built, best: Artifact | None, ratios: tuple[float, ...]) -> int:
        """Submits the judging of a variant, and before it the A/A race of the best one when it is due; the number of
        the judging job. `ratios`: ln(t / t_baseline) of the best one, one a problem."""
        if best is not None and lane.since_aa >= AA_EVERY and lane.racing is None and not lane.is_disturbed:
            race = RaceJob(artifacts=(best, best), conditions=lane.conditions_with(self.tie), blocks=AA_BLOCKS)
            lane.since_aa, lane.racing = 0, self._executor.submit(race, lane.number)
        conditions = lane.conditions_with(self.tie)
        job = JudgeJob(built=built, conditions=conditions, incumbent=best, incumbent_ratios=ratios)
        lane.since_aa += 1
        return self._executor.submit(job, lane.number)

    def racing(self, number: int) -> DeviceLane | None:
        """The lane whose A/A race the job is."""
        return next((lane for lane in self._lanes if lane.racing == number), None)

    def raced(self, lane: DeviceLane, result: Result) -> bool:
        """Takes in the result of a lane's A/A race; whether the tie band was found anew. A race that a disturbed
        machine has spoilt says nothing; the next one is soon."""
        lane.racing = None
        if not isinstance(result, Heat) or result.faults:
            return False
        self._store.record_heat(self._study, "aa", result, session_id=lane.session)
        self._aa.append(aa_ratio(result, self._conditions.objective))
        self.tie = band(self._aa)
        return True
