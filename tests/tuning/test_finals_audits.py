"""What finals find out of a finalist: audits, the baseline beside it, a figure far from the search's."""

import math

import pytest

from autotuner.gate.recheck import AUDIT
from autotuner.race.blocks import HELD_UP
from autotuner.run.jobs import AnyJob, RaceJob, Result
from autotuner.store import Store, queries
from autotuner.tuning.finals import standings
from autotuner.values.outcome import Heat
from autotuner.values.variant import Variant
from tests.helpers import simulated
from tests.helpers.fake_line import Deviations, FakeLine, Truth
from tests.helpers.inline_executor import InlineExecutor
from tests.helpers.simulated_finals import DEFAULT, DEVIATIONS, confirmed, executor, swept


def test_every_finalist_is_audited_in_each_process(store: Store) -> None:
    study = swept(store, simulated.truth, 20)
    by = executor(simulated.truth)
    found = confirmed(store, study, by)
    finalists = {each.digest for each in found.finalists}
    assert set(found.standing.audits) == {each.digest for each in found.standing.finalists} == finalists
    audited = [job.artifacts[0].digest for job in by.jobs if isinstance(job, RaceJob) and job.audits]
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

    def __init__(self, digest: str, deviations: Deviations) -> None:
        seeds = iter(range(1, 1000))
        super().__init__(
            FakeLine(simulated.truth, deviations=deviations),
            fresh=lambda: FakeLine(simulated.truth, deviations=deviations, seed=next(seeds)),
        )
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
    found = confirmed(store, study, Slows(best.outcome.artifact.digest, DEVIATIONS))
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
