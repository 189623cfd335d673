"""The driver's races: promotion, the incumbent, A/A races, several devices, several problems."""

import math
import random

import pytest

from autotuner.race.arms import Tracks
from autotuner.run.jobs import AnyJob, JudgeJob, RaceJob, Result
from autotuner.store import Store, queries
from autotuner.tuning.run.driver import Event, TieFound
from autotuner.tuning.run.flights import AA_EVERY
from autotuner.values import codes
from autotuner.values.conditions import TIE, Conditions
from autotuner.values.gate_report import CheckResult, GateReport
from autotuner.values.outcome import Heat, Outcome, Stop
from autotuner.values.problem import Problem
from autotuner.values.variant import Variant
from autotuner.values.verdict import Fault, Verdict
from tests.helpers import simulated
from tests.helpers.driven import swept
from tests.helpers.fake_line import Deviations, FakeLine, FakeTrack, Truth
from tests.helpers.inline_executor import InlineExecutor

SPACE = simulated.space()
NOISE = 0.005


class Lanes(InlineExecutor):
    """Finishes jobs in any order, one lane's in theirs, and notes what ran where."""

    def __init__(self, lines: list[FakeLine], width: int) -> None:
        super().__init__(lines[0], width, len(lines))
        self._lines, self._draw = lines, random.Random(1)
        self._lane: dict[int, int] = {}

    def submit(self, job: AnyJob, lane: int = 0) -> int:
        number = super().submit(job, lane)
        self._lane[number] = lane
        return number

    def wait(self, timeout: float | None = None) -> tuple[int, Result] | None:
        if self._waiting:
            lane = self._lane[self._draw.choice(self._waiting)[0]]
            place = next(i for i, (number, _) in enumerate(self._waiting) if self._lane[number] == lane)
            self._waiting.rotate(-place)
            self._line = self._lines[lane]
        return super().wait(timeout)


def run(
    store: Store, executor: InlineExecutor, trials: int, conditions: Conditions | None = None
) -> tuple[str, list[Event]]:
    heard: list[Event] = []
    return swept(store, executor, trials, heard.append, conditions=conditions), heard


def test_every_candidate_races_against_the_last_one_that_was_promoted(store: Store) -> None:
    """What races out was slower, and what is equal is not promoted."""
    name, _ = run(store, InlineExecutor(simulated.backend(noise=NOISE)), 60)
    incumbent: Outcome | None = None
    promoted, fastest = 0, math.inf
    for outcome in dict(store.outcomes(name)).values():
        measured, us = outcome.measurement, simulated.microseconds(dict(outcome.variant.point))
        if measured is None:
            continue
        assert outcome.artifact is not None
        before = incumbent.artifact.digest if incumbent is not None and incumbent.artifact is not None else None
        assert measured.incumbent == before
        assert len(measured.timings[0].incumbent_us) == (len(measured.timings[0].variant_us) if before else 0)
        if outcome.verdict == Verdict.RACED_OUT:
            assert us > fastest
            assert measured.stopped in (Stop.SLOWER, Stop.HOPELESS)
        if measured.promoted:
            assert incumbent is None or outcome.objective < incumbent.objective - math.log1p(TIE) / 2
            incumbent, promoted, fastest = outcome, promoted + 1, us
    assert promoted > 3


def test_the_incumbent_races_itself_from_time_to_time(store: Store) -> None:
    deviations = Deviations(noise=NOISE, process=0.02)
    name, heard = run(store, InlineExecutor(FakeLine(simulated.truth, deviations=deviations)), 3 * AA_EVERY + 10)
    heats = queries.aa_heats(store, name)
    assert len(heats) >= 2
    assert all(heat.entrants[0] == heat.entrants[1] for heat in heats)
    ties = [event.tie for event in heard if isinstance(event, TieFound)]
    assert len(ties) == len(heats)
    assert max(ties) > TIE  # loads differ by far more than the least width


def test_a_candidate_sent_before_the_last_promotion_takes_over_only_if_it_is_faster(store: Store) -> None:
    """Two lanes promote side by side: the incumbent is never replaced by a slower one."""
    executor = Lanes([simulated.backend(noise=NOISE) for _ in range(4)], width=12)
    run(store, executor, 60)
    speed: list[float] = []
    for job in executor.jobs:
        if isinstance(job, JudgeJob) and job.incumbent is not None:
            us = simulated.microseconds(dict(job.incumbent.variant.point))
            if not speed or speed[-1] != us:
                speed.append(us)
    assert speed == sorted(speed, reverse=True)
    assert len(speed) > 3


def test_a_resumed_study_goes_on_with_its_incumbent(store: Store) -> None:
    name, _ = run(store, InlineExecutor(simulated.backend(noise=NOISE)), 30)
    last = [o for o in dict(store.outcomes(name)).values() if o.measurement is not None and o.measurement.promoted][-1]
    executor = Lanes([simulated.backend(noise=NOISE)], width=1)
    run(store, executor, 32)
    first = next(job for job in executor.jobs if isinstance(job, JudgeJob))
    assert first.incumbent.digest == last.artifact.digest


# Several problems -----------------------------------------------------------------------------------------------------

LONG = simulated.conditions().problems[0].model_copy(update={"seq_q": 256, "seq_k": 256})


class TwoShapes(FakeLine):
    """On the long problem BLOCK 8 is the fastest, on the short one the others are as ever."""

    def tracks(self, conditions: Conditions) -> Tracks:
        def long(variant: Variant) -> Truth:
            return Truth(us=30.0 * (1 + math.log2(int(variant.point["BLOCK"]) / 8)))

        return [
            FakeTrack(problem, self._device, long if problem == LONG else self._truth, 100.0)
            for problem in conditions.problems
        ]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("objective", ["mean", "max"])
def test_a_study_over_several_problems_keeps_the_numbers_of_each(store: Store, objective: str) -> None:
    problems: tuple[Problem, ...] = (*simulated.conditions().problems, LONG)
    conditions = simulated.conditions().model_copy(
        update={"problems": problems, "baselines": ("fake", "fake"), "objective": objective}
    )
    name, _ = run(store, InlineExecutor(TwoShapes(simulated.truth, noise=NOISE)), 80, conditions)
    over = max if objective == "max" else lambda logs: sum(logs) / len(logs)
    found = [each for each in dict(store.outcomes(name)).values() if each.measurement is not None]
    for outcome in found:
        timings = outcome.measurement.timings
        assert [timing.problem for timing in timings] == list(problems)
        assert outcome.objective == pytest.approx(over([timing.log_ratio.mid for timing in timings]))
    best = min((each for each in found if each.verdict == Verdict.MEASURED), key=lambda each: each.objective)

    def truth(outcome: Outcome) -> float:
        point = dict(outcome.variant.point)
        long = 30.0 * (1 + math.log2(int(point["BLOCK"]) / 8))
        return float(over([math.log(simulated.microseconds(point) / 100), math.log(long / 100)]))

    assert truth(best) == pytest.approx(min(truth(each) for each in found), abs=0.02)


# An incumbent that costs others their process: judged again alone, and revoked -------------------------

CALM = 8
"""Races that end well."""
SEGV = Fault(verdict=Verdict.CRASHED, code="process.signal", detail="signal 11 (SIGSEGV) in measuring")
GONE = Fault(verdict=Verdict.INFRA_ERROR, code=codes.INCUMBENT, detail="the incumbent cannot be launched any more")


class Spoiling(InlineExecutor):
    """The incumbent of some races costs everybody the race from then on; `guilty`: alone it crashes too, where it is
    judged or where it only races."""

    def __init__(self, width: int, fault: Fault, guilty: type[JudgeJob | RaceJob] | None) -> None:
        super().__init__(simulated.backend(noise=0.005), width)
        self._fault, self._guilty = fault, guilty
        self.evil = ""
        self.races = 0
        self.spoilt: set[str] = set()
        self.heard: list[JudgeJob] = []

    def wait(self, timeout: float | None = None) -> tuple[int, Result] | None:
        job: AnyJob | None = self._waiting[0][1] if self._waiting else None
        if isinstance(job, RaceJob) and job.fresh and self._guilty is RaceJob:
            return self._waiting.popleft()[0], SEGV
        fault = self._ending(job) if isinstance(job, JudgeJob) else None
        if fault is None or not isinstance(job, JudgeJob):
            return super().wait(timeout)
        number, _ = self._waiting.popleft()
        passed = CheckResult(code="G1.smoke", status="pass", seconds=0.0)
        gate = GateReport(artifact=job.built.artifact.digest, required=(), checks=(passed,), fault=fault)
        outcome = Outcome(
            variant=job.variant, verdict=fault.verdict, artifact=job.built.artifact, gate=gate, fault=fault
        )
        return number, outcome

    def _ending(self, job: JudgeJob) -> Fault | None:
        if job.soak == "chosen":
            self.heard.append(job)
            return SEGV if self._guilty is JudgeJob else None
        if job.incumbent is None:
            return None
        self.races += 1
        if self.races == CALM:
            self.evil = job.incumbent.digest
        if job.incumbent.digest != self.evil:
            return None
        self.spoilt.add(job.variant.digest)
        return self._fault


def outcomes_beside(store: Store, executor: Spoiling) -> dict[int, Outcome]:
    study = swept(store, executor, 30)
    return {number: queries.trial(store, study, number).outcome for number, _ in store.outcomes(study)}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("width", [1, 4])
@pytest.mark.parametrize("guilty", [JudgeJob, RaceJob])
@pytest.mark.parametrize("fault", [SEGV, GONE], ids=["crashed", "not launched"])
def test_a_guilty_one_is_revoked_and_those_it_spoilt_are_measured(
    store: Store, width: int, guilty: type[JudgeJob | RaceJob], fault: Fault
) -> None:
    executor = Spoiling(width, fault, guilty)
    found = outcomes_beside(store, executor)
    assert len(executor.heard) == 1
    assert executor.heard[0].built.artifact.digest == executor.evil
    assert executor.spoilt
    ends = {each.variant.digest: each.verdict for each in found.values()}
    assert all(ends[digest].has_latency for digest in executor.spoilt)
    assert not [each for each in found.values() if each.verdict in (Verdict.CRASHED, Verdict.INFRA_ERROR)]
    (study,) = store.study_ids
    (evil,) = (number for number, each in found.items() if each.artifact and each.artifact.digest == executor.evil)
    record = queries.trial(store, study, evil)
    assert "signal 11" in (record.revoked_reason or "")


def test_one_that_is_acquitted_spoils_no_more_than_twice(store: Store) -> None:
    executor = Spoiling(1, SEGV, guilty=None)
    found = outcomes_beside(store, executor)
    assert len(executor.heard) == 1
    assert len(executor.spoilt) == 2
    assert not [each for each in found.values() if each.verdict == Verdict.CRASHED]


class WrongBesideItself(Spoiling):
    """The first race of an incumbent against itself says that its outputs are wrong; nobody else notices."""

    def wait(self, timeout: float | None = None) -> tuple[int, Result] | None:
        job: AnyJob | None = self._waiting[0][1] if self._waiting else None
        found = super().wait(timeout)
        if found is None or not isinstance(job, RaceJob) or job.fresh or self.evil:
            return found
        self.evil = job.artifacts[0].digest
        assert isinstance(found[1], Heat)
        wrong = Fault(verdict=Verdict.INCORRECT, code="G7.output", detail="an output breaks T1")
        return found[0], found[1].model_copy(update={"faults": {0: wrong}})


def test_one_that_is_wrong_in_a_race_against_itself_is_heard(store: Store) -> None:
    executor = WrongBesideItself(1, SEGV, RaceJob)
    executor.races = CALM  # those of others end well throughout
    outcomes_beside(store, executor)
    (heard,) = executor.heard
    assert heard.built.artifact.digest == executor.evil
    (study,) = store.study_ids
    assert queries.revoked(store, study)
