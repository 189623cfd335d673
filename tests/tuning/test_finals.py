"""The finals: who is in them, what they find, and that nothing is lost."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from autotuner.measure.confirm import FINAL_BLOCKS, PROCESSES
from autotuner.run.fake import FakeLine, Truth, Weather
from autotuner.run.inline import InlineExecutor
from autotuner.run.jobs import AnyJob, JudgeJob, RaceJob, Result
from autotuner.run.line import Passed
from autotuner.store import FinalsRecord, Store, queries
from autotuner.tuning import standings
from autotuner.tuning.driver import Budget, Driver
from autotuner.tuning.finals import Finals, Step, contenders, due
from autotuner.tuning.plan import Plan
from autotuner.values.conditions import Conditions
from autotuner.values.errors import InfrastructureError, InputError
from autotuner.values.gate_report import CheckResult, GateReport
from autotuner.values.outcome import Artifact, Heat, Outcome, Say
from autotuner.values.variant import Variant
from autotuner.values.verdict import Fault, Verdict
from tests.helpers import simulated

SPACE = simulated.space()
DEFAULT = Variant.of("sdpa", "cpu", SPACE.point(SPACE.default_index)).digest
WEATHER = Weather(noise=0.004, spikes=0.02, process=0.002)
Truths = Callable[[Variant], Truth]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with closing(Store.open(str(tmp_path / "studies.db"))) as opened:
        yield opened


def executor(truth: Truths, weather: Weather = WEATHER) -> InlineExecutor:
    """Each fresh process is another one."""
    seeds = iter(range(1, 1000))
    return InlineExecutor(
        FakeLine(truth, weather=weather), fresh=lambda: FakeLine(truth, weather=weather, seed=next(seeds))
    )


def swept(store: Store, truth: Truths, trials: int = 40) -> str:
    driver = Driver(store, executor(truth), Plan(SPACE, simulated.DEVICE, simulated.conditions()))
    driver.run(Budget(trials=trials))
    return driver.name


def confirmed(
    store: Store, study: str, by: InlineExecutor, listen: Callable[[Step], None] = lambda _: None
) -> FinalsRecord:
    return Finals(store, study, simulated.conditions(), by, {"os": "none"}, DEFAULT, listen).run()


def outcomes(store: Store, study: str) -> dict[int, Outcome]:
    return dict(store.judged_numbers(study))


def equal(_: Variant) -> Truth:
    return Truth(us=50.0)


def test_the_best_eight_those_that_overlap_and_the_default_are_in(store: Store) -> None:
    study = swept(store, simulated.truth)
    found = outcomes(store, study)
    numbers = contenders(found, DEFAULT)
    right = sorted((o.objective, n) for n, o in found.items() if o.measurement is not None and o.original is None)
    assert set(numbers) >= {number for _, number in right[:8]}
    assert [n for n in numbers if found[n].variant.digest == DEFAULT]
    assert list(numbers) == sorted(numbers, key=lambda n: (found[n].objective, n))


def test_all_that_overlap_the_best_are_in_up_to_a_limit(store: Store) -> None:
    study = swept(store, equal, 45)
    assert 12 < len(contenders(outcomes(store, study), DEFAULT)) <= 33


def test_of_equal_programs_one_is_in(store: Store) -> None:
    def two(variant: Variant) -> Truth:
        fast = variant.point["BLOCK"] == 64
        return Truth(us=40.0 if fast else 50.0, program=str(fast))

    study = swept(store, two, 30)
    assert len(contenders(outcomes(store, study), DEFAULT)) <= 2


def test_a_clear_winner_is_crowned_and_the_default_confirmed_beside_it(store: Store) -> None:
    def one_better(variant: Variant) -> Truth:
        return Truth(us=45.0 if variant.point == simulated_best else 50.0)

    study = swept(store, simulated.truth, 1)
    simulated_best = SPACE.point(SPACE.default_index)
    study = swept(store, one_better, 20)
    found = confirmed(store, study, executor(one_better))
    assert found.standing is not None
    assert found.standing.crowned
    leader = found.by_digest[found.standing.leader or ""]
    assert leader.variant.point == simulated_best
    assert len(found.heats) == found.standing.processes == PROCESSES
    assert {len(blocks) for heat in found.heats for blocks in heat.baseline_us} == {FINAL_BLOCKS}
    ratios = {c.digest: c.log_ratio for c in found.standing.finalists}
    assert ratios[leader.digest].mean == pytest.approx(math.log(0.45), abs=0.01)  # 5 deviations between processes
    best = standings.best(store, study)
    assert best is not None
    assert best.crowned
    assert best.confirmed is not None


def test_equals_are_a_tie_and_nobody_is_crowned(store: Store) -> None:
    study = swept(store, equal, 25)
    found = confirmed(store, study, executor(equal))
    assert found.standing is not None
    assert not found.standing.crowned
    assert sum(each.tied for each in found.standing.finalists) > len(found.finalists) / 2


def test_what_is_slower_than_sdpa_is_never_crowned(store: Store) -> None:
    def slow(variant: Variant) -> Truth:
        return Truth(us=120.0 if variant.digest == DEFAULT else 150.0)

    study = swept(store, slow, 12)
    found = confirmed(store, study, executor(slow))
    assert found.standing is not None
    assert found.standing.leader is not None
    assert not found.standing.crowned


class Unsound(FakeLine):
    """Its fastest variant is right in the search and races in the long soak."""

    def check(self, artifact: Artifact, conditions: Conditions, say: Say, passed: Passed | None = None) -> GateReport:
        if passed is not None and passed.level == "finalist" and self._truth(artifact.variant).us < 45:
            failed = CheckResult(code="G6.soak", status="fail", seconds=0.0)
            fault = Fault(verdict=Verdict.NONDETERMINISTIC, code="G6.soak", detail="launch 700 differs")
            return passed.report.extended((failed,), fault)
        return super().check(artifact, conditions, say, passed)


def test_a_finalist_that_fails_the_gate_is_revoked_and_the_next_one_leads(store: Store) -> None:
    def truth(variant: Variant) -> Truth:
        return Truth(us=40.0 if variant.digest == DEFAULT else 50.0)

    study = swept(store, truth, 12)
    backend = Unsound(truth, weather=WEATHER)
    found = confirmed(store, study, InlineExecutor(backend, fresh=lambda: FakeLine(truth, weather=WEATHER)))
    assert DEFAULT not in {finalist.variant.digest for finalist in found.finalists}
    number = next(n for n, o in outcomes(store, study).items() if o.variant.digest == DEFAULT)
    record = queries.trial(store, study, number)
    assert record.revoked_reason is not None
    assert "G6.soak" in record.revoked_reason
    assert due(store, study, DEFAULT)  # the ninth is now among the best eight
    confirmed(store, study, InlineExecutor(backend, fresh=lambda: FakeLine(truth, weather=WEATHER)))
    assert not due(store, study, DEFAULT)


def test_every_finalist_passes_the_gate_on_seeds_that_the_search_did_not_have(store: Store) -> None:
    study = swept(store, simulated.truth, 15)
    seen: list[AnyJob] = []

    class Notes(InlineExecutor):
        def submit(self, job: AnyJob, lane: int = 0) -> int:
            seen.append(job)
            return super().submit(job, lane)

    confirmed(store, study, Notes(FakeLine(simulated.truth, weather=WEATHER)))
    judged = [job for job in seen if isinstance(job, JudgeJob)]
    raced = [job for job in seen if isinstance(job, RaceJob)]
    assert all(job.soak == "finalist" for job in judged)
    assert all(job.fresh for job in raced)
    seeds = [judged[0].conditions.seeds, *(job.conditions.seeds for job in raced)]
    assert simulated.conditions().seeds not in seeds
    assert len(set(seeds)) == len(seeds) == PROCESSES + 1


def test_a_heat_that_a_busy_machine_spoilt_is_run_again_and_then_given_up(store: Store) -> None:
    study = swept(store, simulated.truth, 12)
    spoilt = [0]

    class Busy(InlineExecutor):
        def wait(self, timeout: float | None = None) -> tuple[int, Result] | None:
            done = super().wait(timeout)
            if done is not None and isinstance(done[1], Heat) and spoilt[0] > 0:
                spoilt[0] -= 1
                return done[0], Fault(verdict=Verdict.INFRA_ERROR, code="measure.drift", detail="SDPA is slow")
            return done

    by = Busy(FakeLine(simulated.truth, weather=WEATHER))
    spoilt[0] = 2
    assert confirmed(store, study, by).standing is not None
    spoilt[0] = 3
    with pytest.raises(InfrastructureError, match="SDPA is slow"):
        confirmed(store, study, by)
    assert standings.finals(store, study) is not None  # those before stand


def test_finals_are_due_when_the_search_found_others(store: Store) -> None:
    study = swept(store, simulated.truth, 10)
    assert due(store, study, DEFAULT)
    confirmed(store, study, executor(simulated.truth))
    assert not due(store, study, DEFAULT)
    swept(store, simulated.truth, 40)
    assert due(store, study, DEFAULT)


def test_a_study_without_a_right_variant_has_no_finals(store: Store) -> None:
    def wrong(_: Variant) -> Truth:
        return Truth(fault=Verdict.INCORRECT)

    study = swept(store, wrong, 5)
    assert not due(store, study, DEFAULT)
    with pytest.raises(InputError, match="no right variant"):
        confirmed(store, study, executor(wrong))
