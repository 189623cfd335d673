"""The finals: who is in them, what they find, and that nothing is lost."""

import math
import sqlite3
from collections import Counter
from pathlib import Path

import pytest

from autotuner.cli.output import say_reservations
from autotuner.gate.recheck import AUDIT
from autotuner.race.arms import Tracks
from autotuner.race.blocks import HELD_UP
from autotuner.race.confirm import FINAL_BLOCKS, FIRST, PROCESSES
from autotuner.run.jobs import AnyJob, CalibrationJob, JudgeJob, RaceJob, Result
from autotuner.run.line import Passed
from autotuner.spaces.space import Space, SpaceFile
from autotuner.store import Store, queries
from autotuner.tuning.finals import standings
from autotuner.tuning.finals.finals import Finals, due
from autotuner.tuning.finals.plan import as_many_as_fit, by_merit, contenders, searched
from autotuner.tuning.finals.retrials import Retrials
from autotuner.tuning.run.driver import Event, Judged
from autotuner.values.conditions import Conditions
from autotuner.values.errors import InfrastructureError, OutOfTimeError
from autotuner.values.gate_report import CheckResult, GateReport
from autotuner.values.outcome import Artifact, Calibration, Ceilings, Heat, Say
from autotuner.values.variant import Variant
from autotuner.values.verdict import Fault, Verdict
from autotuner.views.trial_words import reservations
from tests.helpers import driven, simulated
from tests.helpers.fake_line import LAUNCHES, FakeLine, Truth
from tests.helpers.inline_executor import InlineExecutor
from tests.helpers.simulated_finals import DEFAULT, DEVIATIONS, SPACE, confirmed, executor, flatter, swept

SECOND = """
[[problems]]
batch = 1
heads = 2
seq_q = 256
seq_k = 256
head_dim = 64
dtype = "float32"
"""


def test_the_best_eight_those_that_overlap_and_the_default_are_in(store: Store) -> None:
    study = swept(store, simulated.truth)
    found = dict(store.outcomes(study))
    known = searched(found.items())
    numbers = contenders(known, DEFAULT)
    right = sorted((o.objective, n) for n, o in found.items() if o.measurement is not None and o.original is None)
    assert set(numbers) >= {number for _, number in right[:8]}
    assert [n for n in numbers if found[n].variant.digest == DEFAULT]
    assert list(numbers) == sorted(numbers, key=lambda n: (found[n].objective, n))
    assert by_merit(numbers, known, {}) == numbers
    lucky = {known[numbers[0]].artifact or "": [found[numbers[1]].objective + 1.0] * 3}
    assert by_merit(numbers, known, lucky)[0] == numbers[1]  # others' races have shown the first one slower


@pytest.mark.parametrize(("seconds", "lost", "stay"), [(1000, True, 3), (3, False, 2), (3, True, 1)])
def test_a_short_time_is_the_firsts_alone_where_the_search_has_told_it_from_the_next(
    seconds: float, lost: bool, stay: int
) -> None:
    slower = {number: frozenset({4} if lost and number != 4 else ()) for number in (4, 7, 9)}
    assert as_many_as_fit((4, 7, 9), (2.0, 2.0, 2.0), seconds, slower) == (4, 7, 9)[:stay]


def test_a_clear_winner_is_crowned_and_the_default_confirmed_beside_it(store: Store) -> None:
    def one_better(variant: Variant) -> Truth:
        return Truth(us=45.0 if variant.point == simulated_best else 50.0)

    study = swept(store, lambda _: Truth(us=50.0), 1)
    simulated_best = SPACE.point(SPACE.default_index)
    study = swept(store, one_better, 20)
    found = confirmed(store, study, executor(one_better))
    assert found.standing.crowned
    assert {len(race) for races in found.raced for race in races} == {len(found.baselines)}
    leader = found.by_digest[found.standing.leader or ""]
    assert leader.variant.point == simulated_best
    assert found.standing.processes == PROCESSES
    heats = Counter(heat.entrants for heat in found.heats)
    assert max(len(entrants) for entrants in heats) == 1  # nobody races beside another finalist
    assert (heats[()], heats[leader.digest,]) == (1, PROCESSES)
    assert heats.total() < PROCESSES * len(found.finalists)  # who is far behind is dropped
    assert {len(blocks) for heat in found.heats for blocks in heat.baseline_us} == {FINAL_BLOCKS}
    ratios = {c.digest: c.log_ratio for c in found.standing.finalists}
    assert ratios[leader.digest].mid == pytest.approx(math.log(0.45), abs=0.01)  # 5 deviations between processes
    best = standings.best(store, study)
    assert best.entry.crowned
    assert best.confirmed is not None


def calibrations(store: Store, known: Calibration | None) -> int:
    """How many there are in finals that are given one."""
    study = swept(store, lambda _: Truth(us=50.0), 12)
    by = executor(lambda _: Truth(us=50.0))
    Finals(Retrials(store, study, simulated.conditions(), by, {"os": "none"}, known=known), DEFAULT).run()
    return sum(isinstance(job, CalibrationJob) for job in by.jobs)


def test_the_baselines_that_the_search_has_timed_minutes_ago_are_not_timed_again(store: Store) -> None:
    known = FakeLine(lambda _: Truth(us=50.0)).calibrate(simulated.conditions(), lambda _: None)
    assert (calibrations(store, None), calibrations(store, known)) == (1, 0)


class SlowWhenWarm(FakeLine):
    """Its variants take three times as long where the caches have the tensors, and moving these is what takes long."""

    def calibrate(self, conditions: Conditions, say: Say) -> Calibration:
        found = super().calibrate(conditions, say)
        return found.model_copy(update={"ceilings": Ceilings(flops=1e15, bytes=1e11)})

    def tracks(self, conditions: Conditions) -> Tracks:
        times = 3.0 if conditions.cache == "warm" else 1.0
        return FakeLine(lambda variant: Truth(us=times * self._truth(variant).us)).tracks(conditions)


def test_what_loses_where_the_caches_have_the_tensors_is_not_chosen_without_a_word(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    by = InlineExecutor(SlowWhenWarm(lambda _: Truth(us=50.0)), fresh=lambda: SlowWhenWarm(lambda _: Truth(us=50.0)))
    study = driven.swept(store, by, 3)
    untried = standings.best(store, study)
    assert untried is not None
    assert "Timed cold alone: warm, as where the caches" in reservations(untried)[0]
    say_reservations(untried, untried)
    assert capsys.readouterr().out.count("Timed cold alone") == 1
    confirmed(store, study, by)
    best = standings.best(store, study)
    assert best is not None
    assert best.confirmed.mid == pytest.approx(2)
    assert best.proof.other_cache.cache == "warm"
    assert best.proof.other_cache.speedup.mid == pytest.approx(2 / 3)
    assert "SDPA is faster there" in reservations(best)[0]


def test_what_is_slower_than_sdpa_is_never_crowned(store: Store) -> None:
    def slow(variant: Variant) -> Truth:
        return Truth(us=120.0 if variant.digest == DEFAULT else 150.0)

    study = swept(store, slow, 12)
    found = confirmed(store, study, executor(slow))
    assert found.standing.leader is not None
    assert not found.standing.crowned


class WrongLate(FakeLine):
    """Its fastest variants are right in the search and wrong at a later level of the gate."""

    wrong = "finalist", "G6.soak", "launch 700 differs"

    def check(self, artifact: Artifact, conditions: Conditions, say: Say, passed: Passed | None = None) -> GateReport:
        level, code, detail = self.wrong
        if passed is not None and passed.level == level and self._truth(artifact.variant).us < 45:
            failed = CheckResult(code=code, status="fail", seconds=0.0)
            fault = Fault(verdict=Verdict.NONDETERMINISTIC, code=code, detail=detail)
            return passed.report.extended((failed,), fault)
        return super().check(artifact, conditions, say, passed)


def test_a_finalist_that_ties_and_fails_the_gate_is_revoked(store: Store) -> None:
    """The one to use has its gate with its proof, in a process of its own; the other one that may lead before that."""
    seen: dict[str, int] = {}

    def truth(variant: Variant) -> Truth:
        return Truth(us=40.0 if seen.setdefault(variant.digest, len(seen)) < 2 else 50.0)

    study = swept(store, truth, 12)
    backend = WrongLate(truth, deviations=DEVIATIONS)
    found = confirmed(store, study, InlineExecutor(backend, fresh=lambda: FakeLine(truth, deviations=DEVIATIONS)))
    fast = [n for n, o in dict(store.outcomes(study)).items() if seen[o.variant.digest] < 2]
    (number,) = found.revoked
    assert number in fast
    assert found.by_digest[found.standing.leader or ""].number in {*fast} - {number}
    record = queries.trial(store, study, number)
    assert "G6.soak" in (record.revoked_reason or "")
    assert due(store, study, DEFAULT)  # the ninth is now among the best eight
    confirmed(store, study, InlineExecutor(backend, fresh=lambda: FakeLine(truth, deviations=DEVIATIONS)))
    assert not due(store, study, DEFAULT)


def test_who_stays_in_the_running_passes_the_gate_on_seeds_that_the_search_did_not_have(store: Store) -> None:
    study = swept(store, simulated.truth, 15)
    by = InlineExecutor(FakeLine(simulated.truth, deviations=DEVIATIONS))
    found = confirmed(store, study, by)
    judged = [job for job in by.jobs if isinstance(job, JudgeJob)]
    raced = [job for job in by.jobs if isinstance(job, RaceJob)]
    assert [job.soak for job in judged].count("chosen") == 1
    assert judged[-1].soak == "chosen"
    assert judged[-1].fresh
    assert all(job.fresh for job in raced)
    assert {each.digest for each in found.standing.finalists if each.tied} <= {
        job.built.artifact.digest for job in judged
    }
    rounds = {job.conditions.seeds for job in raced}
    assert len(rounds) == PROCESSES  # all of a round have the same inputs
    assert not {simulated.conditions().seeds, *rounds} & {job.conditions.seeds for job in judged}
    assert simulated.conditions().seeds not in rounds


def test_the_one_to_use_has_a_proof_and_the_next_one_gets_it_when_that_fails(store: Store) -> None:
    class Rare(WrongLate):
        wrong = "many", "G6.many", "launch 5000 differs"

    def truth(variant: Variant) -> Truth:
        return Truth(us=40.0 if variant.digest == DEFAULT else 50.0)

    study = swept(store, truth, 12)
    found = confirmed(store, study, InlineExecutor(Rare(truth, deviations=DEVIATIONS)))
    wrong = next(n for n, o in dict(store.outcomes(study)).items() if o.variant.digest == DEFAULT)
    assert found.revoked == (wrong,)
    assert "launch 5000 differs" in (queries.trial(store, study, wrong).revoked_reason or "")
    best = standings.best(store, study)
    assert best.entry.number != wrong
    assert best.proof.number == best.entry.number
    assert [each.code for each in best.proof.checks] == ["G6.many", "G8.memory"]
    assert best.gate.checks[-2].launches == LAUNCHES
    assert best.confirmed.mid == pytest.approx(2.0, rel=0.01)


def test_who_serves_a_problem_beside_the_one_to_use_has_a_proof_too(store: Store) -> None:
    """One is best on the first problem and over both, another one on the second."""
    text = simulated.TOML.replace("[parameters]", f"{SECOND}\n[parameters]", 1)
    space = Space.enumerate(SpaceFile.parse(text, Path("two.toml")), simulated.DEVICE.facts)
    problems = space.file.problems
    conditions = simulated.conditions().model_copy(update={"problems": problems, "baselines": ("fake", "fake")})

    def truth(variant: Variant) -> Truth:
        blocks = {8: (30.0, 50.0), 16: (60.0, 40.0)}
        first, second = blocks.get(int(variant.point["BLOCK"]), (80.0, 80.0))
        return Truth(us=80.0, on={str(problems[0]): first, str(problems[1]): second}, program=str(first))

    study = driven.swept(store, executor(truth), 25, space=space, conditions=conditions)
    found = Finals(Retrials(store, study, conditions, executor(truth), {"os": "none"}), DEFAULT).run()
    finalists = found.by_digest
    blocks = [finalists[proof.digest].variant.point["BLOCK"] for proof in found.standing.proofs]
    assert blocks == [8, 16]
    best = standings.best(store, study)
    assert best.proof is not None
    assert best.entry.variant.point["BLOCK"] == 8


@pytest.mark.parametrize("seconds", [60.0, 15.0])
def test_the_one_to_use_is_tried_on_the_shorter_lengths_of_a_cache_that_grows(store: Store, seconds: float) -> None:
    """Where there is time for that: a dozen heats of a second each."""
    text = simulated.TOML.replace("seq_q = 64", "seq_q = 1", 1)
    space = Space.enumerate(SpaceFile.parse(text, Path("grows.toml")), simulated.DEVICE.facts)
    (problem,) = space.file.problems
    conditions = simulated.conditions().model_copy(update={"problems": (problem,)})
    study = driven.swept(store, executor(simulated.truth), 12, space=space, conditions=conditions)
    trials = Retrials(store, study, conditions, executor(simulated.truth), {"os": "none"}, seconds=seconds)
    Finals(trials, DEFAULT).run()
    if seconds < 20:
        assert not queries.validations(store, study)
        return
    (found,) = queries.validations(store, study)
    assert (found.number, found.vary) == (standings.best(store, study).record.number, ("seq_k",))
    shortest, drawn = (each.shape[2:4] for each in found.problems)
    assert (shortest, drawn[0], 1 < drawn[1] < problem.shape[3]) == ((1, 1), 1, True)


def test_where_time_is_short_the_best_of_the_search_races_alone_and_has_its_proof(store: Store) -> None:
    study = swept(store, simulated.truth, 12)
    trials = Retrials(store, study, simulated.conditions(), executor(simulated.truth), {"os": "none"}, seconds=1e-3)
    found = Finals(trials, DEFAULT).run()
    heats = Counter(heat.entrants for heat in found.heats if heat.entrants)
    assert heats == {(found.standing.leader,): FIRST}
    assert [proof.digest for proof in found.standing.proofs] == [found.standing.leader]


class Late(FakeLine):
    """The time is over when a variant has to go through a level of the gate; the first times are let pass."""

    level, passes = "many", 0

    def check(self, artifact: Artifact, conditions: Conditions, say: Say, passed: Passed | None = None) -> GateReport:
        if passed is not None and passed.level == self.level:
            if not self.passes:
                raise OutOfTimeError("the time is over")
            self.passes -= 1
        return super().check(artifact, conditions, say, passed)


def test_processes_that_ended_before_the_time_was_over_count_and_crown_nobody(store: Store) -> None:
    study = swept(store, simulated.truth, 12)
    found = confirmed(store, study, InlineExecutor(Late(simulated.truth, deviations=DEVIATIONS)))
    best = standings.best(store, study)
    assert (best.proof, best.entry.crowned, found.standing.crowned) == (None, False, False)
    assert best.confirmed.low > 1
    assert due(store, study, DEFAULT)
    proven = confirmed(store, study, executor(simulated.truth))
    assert proven.standing.proofs
    assert standings.best(store, study).confirmed.mid == pytest.approx(best.confirmed.mid, rel=0.01)
    with pytest.raises(OutOfTimeError):  # it would take the place of what is proven
        confirmed(store, study, InlineExecutor(Late(simulated.truth, deviations=DEVIATIONS)))
    assert standings.finals(store, study).id == proven.id


def test_one_process_of_each_says_nothing_when_the_time_is_over(store: Store) -> None:
    study = swept(store, simulated.truth, 12)

    class Soon(Late):
        level, passes = "again", 2

    with pytest.raises(OutOfTimeError):
        confirmed(store, study, InlineExecutor(Soon(simulated.truth, deviations=DEVIATIONS)))
    assert standings.finals(store, study) is None


# What the search believes afterwards --------------------------------------------------------------------------------


@pytest.mark.sampled(1)
@pytest.mark.parametrize("sampler", ["evolution", "tpe"])
def test_a_search_that_goes_on_believes_the_finals_and_not_its_own_estimate(store: Store, sampler: str) -> None:
    """A disturbed machine made one variant look far faster than it is."""
    study = swept(store, simulated.truth, 12)
    lucky = next(n for n, o in dict(store.outcomes(study)).items() if o.variant.digest == DEFAULT)
    with sqlite3.connect(store.label) as raw:
        flatter(raw, lucky)
    best = standings.best(store, study)
    assert best.entry.number == lucky
    confirmed(store, study, executor(simulated.truth))
    true = math.log(simulated.truth(best.entry.variant).us / 100)
    assert standings.corrections(store, study)[lucky] == pytest.approx(true, abs=0.01)
    heard: list[Event] = []
    driven.swept(store, executor(simulated.truth), 14, heard.append, sampler=sampler)
    told = [event.best for event in heard if isinstance(event, Judged)]
    assert told
    assert all(each is not None and each > math.log(0.3) for each in told)
    summary = standings.summary(store, study)
    assert summary.best_confirmed
    assert summary.best_number != lucky


# What finals find out of a finalist -----------------------------------------------------------------------------------


def test_every_finalist_is_audited_in_each_process(store: Store) -> None:
    study = swept(store, simulated.truth, 20)
    by = executor(simulated.truth)
    found = confirmed(store, study, by)
    finalists = {each.digest for each in found.finalists}
    assert set(found.standing.audits) == {each.digest for each in found.standing.finalists} == finalists
    audited = [job.artifacts[0].digest for job in by.jobs if isinstance(job, RaceJob) and job.judged]
    assert set(audited) == finalists
    assert len(audited) >= 2 * len(finalists), "in each of its processes"
    for finalist in found.finalists:
        record = queries.trial(store, study, finalist.number)
        gate = standings.proven(store, record).gate
        assert [check.status for check in gate.checks if check.code == AUDIT] == ["pass"]


def test_a_finalist_that_never_led_is_found_out_too(store: Store) -> None:
    """Too slow to be promoted or to stay in the running, and never audited for that; yet its figure is quoted."""

    def keeps(variant: Variant) -> Truth:
        return Truth(us=50.0) if variant.digest == DEFAULT else Truth(us=56.0, honest_us=112.0)

    study = swept(store, keeps, 6)
    found = confirmed(store, study, executor(keeps))
    default = next(each for each in found.finalists if each.variant.digest == DEFAULT)
    assert len(found.finalists) > 1
    assert set(found.revoked) == {each.number for each in found.finalists} - {default.number}
    assert set(standings.every_confirmed(store, study)) == {default.number}
    for number in found.revoked:
        assert "measure.memory" in (queries.trial(store, study, number).revoked_reason or "")


class Slows(InlineExecutor):
    """The baseline takes half as long again beside one variant, and what it was otherwise."""

    def __init__(self, digest: str) -> None:
        by = executor(simulated.truth)
        super().__init__(by._line, fresh=by._fresh)
        self._digest = digest
        self._races: set[int] = set()

    def submit(self, job: AnyJob, lane: int = 0) -> int:
        number = super().submit(job, lane)
        if isinstance(job, RaceJob) and any(each.digest == self._digest for each in job.artifacts):
            self._races.add(number)
        return number

    def wait(self, timeout: float | None = None) -> tuple[int, Result] | None:
        done = super().wait(timeout)
        if done is None or done[0] not in self._races or not isinstance(done[1], Heat):
            return done
        slow = tuple(tuple(1.5 * us for us in problem) for problem in done[1].baseline_us)
        return done[0], done[1].model_copy(update={"baseline_us": slow})


def test_a_finalist_that_slows_the_baseline_beside_it_is_out_and_nobody_else_is(store: Store) -> None:
    study = swept(store, simulated.truth, 12)
    best = standings.best(store, study)
    found = confirmed(store, study, Slows(best.outcome.artifact.digest))
    assert found.revoked == (best.entry.number,)
    reason = queries.trial(store, study, best.entry.number).revoked_reason or ""
    assert reason.startswith("in the finals: measure.witness, the baseline takes ")
    assert reason.endswith(" % longer beside it than by itself right before and after")
    truths = {each.digest: math.log(simulated.truth(each.variant).us / 100) for each in found.finalists}
    for each in found.standing.finalists:
        assert each.log_ratio.mid == pytest.approx(truths[each.digest], abs=0.01)


@pytest.mark.parametrize(("share", "wide"), [(0.2, False), (0.97, True)])
def test_finals_on_a_busy_machine_end_and_their_intervals_have_the_truth(
    store: Store, share: float, wide: bool
) -> None:
    """Where most blocks are left the figures are as sharp as ever; where none is, the interval says so and nobody is
    crowned by waiting that fell on one side."""
    busy = DEVIATIONS.model_copy(update={"held_up": share})
    study = swept(store, simulated.truth, 12)
    found = confirmed(store, study, executor(simulated.truth, busy))
    truths = {each.digest: math.log(simulated.truth(each.variant).us / 100) for each in found.finalists}
    covered = [
        each.log_ratio.low - 0.01 <= truths[each.digest] <= each.log_ratio.high + 0.01
        for each in found.standing.finalists
    ]
    assert sum(covered) >= len(covered) - 1
    widths = [each.log_ratio.high - each.log_ratio.low for each in found.standing.finalists]
    assert (min(widths) > 0.2) == wide
    assert any(heat.held_up > HELD_UP for heat in found.heats) == wide


def test_finals_say_nothing_beside_a_baseline_that_is_held_up_all_the_time(store: Store) -> None:
    study = swept(store, simulated.truth, 3)
    found = FakeLine(simulated.truth).calibrate(simulated.conditions(), lambda _: None)
    quick = tuple(each.model_copy(update={"median_us": each.median_us / 260}) for each in found.timings)
    by = executor(simulated.truth, DEVIATIONS.model_copy(update={"held_up": 0.97}))
    known = found.model_copy(update={"timings": quick})
    with pytest.raises(InfrastructureError, match=r"cannot be raced: the baseline took .* us in the race"):
        Finals(Retrials(store, study, simulated.conditions(), by, {"os": "none"}, known=known), DEFAULT).run()


def test_a_finalist_far_faster_than_in_the_search_is_revoked(store: Store) -> None:
    """One binary takes a quarter of its time in each process of the finals."""
    study = swept(store, simulated.truth, 12)
    best = standings.best(store, study)
    cheat = best.outcome.variant

    def faster(variant: Variant) -> Truth:
        found = simulated.truth(variant)
        return found.model_copy(update={"us": found.us / 4}) if variant == cheat else found

    found = confirmed(store, study, executor(faster))
    assert found.revoked == (best.entry.number,)
    assert "measure.unlike" in (queries.trial(store, study, best.entry.number).revoked_reason or "")
