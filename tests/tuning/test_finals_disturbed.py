"""The finals on a machine that something disturbs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from autotuner.store import FinalsRecord, Store, queries
from autotuner.tuning.finals import heats, standings
from autotuner.tuning.finals.finals import Finals
from autotuner.tuning.finals.retrials import Retrials
from autotuner.tuning.run.calm import STEADY_S
from autotuner.values import config
from autotuner.values.errors import InfrastructureError
from tests.helpers import simulated
from tests.helpers.fake_line import FakeLine
from tests.helpers.inline_executor import InlineExecutor
from tests.helpers.simulated_finals import DEFAULT, DEVIATIONS, confirmed, executor, swept
from tests.helpers.spoilt import Spoilt


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with closing(Store.open(str(tmp_path / "studies.db"))) as opened:
        yield opened


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits for a calm machine, which take no time."""
    made: list[float] = []
    monkeypatch.setattr(heats, "pause", lambda seconds, beat: made.append(seconds))
    return made


def test_a_disturbed_machine_is_waited_for_and_the_heat_run_again(store: Store, pauses: list[float]) -> None:
    study = swept(store, simulated.truth, 12)
    busy = [False] * 5 + [True] * 4
    said: list[str] = []
    by = Spoilt(FakeLine(simulated.truth, deviations=DEVIATIONS), lambda job: bool(busy) and busy.pop(0))
    found = confirmed(store, study, by, lambda step: said.append(step.text))
    assert found.standing is not None
    assert not found.revoked
    assert len(pauses) == 3  # the heat that was spoilt, and three looks
    assert pauses == sorted(pauses)
    assert any("waiting for a calm machine" in line for line in said)
    assert any("the machine is calm again; waited" in line for line in said)


def two_speeds(slow_us: float) -> InlineExecutor:
    """The baseline takes 100 us in the process that calibrates, and so long in every fresh one."""
    seeds = iter(range(1, 1000))
    return InlineExecutor(
        FakeLine(simulated.truth, deviations=DEVIATIONS),
        fresh=lambda: FakeLine(simulated.truth, deviations=DEVIATIONS, seed=next(seeds), baseline_us=slow_us),
    )


def finals_of(store: Store, study: str, by: InlineExecutor, said: list[str], who: str) -> FinalsRecord:
    where = (store, study, simulated.conditions(), by, {"os": "none"})
    trials = Retrials(*where, lambda step: said.append(step.text), who=lambda: who)
    return Finals(trials, DEFAULT).run()


def test_a_baseline_that_is_slower_in_every_process_is_believed_where_nobody_disturbs(
    store: Store, pauses: list[float]
) -> None:
    study, said = swept(store, simulated.truth, 12), list[str]()
    found = finals_of(store, study, two_speeds(122), said, who="")
    assert found.standing is not None
    assert STEADY_S < sum(pauses) < 3 * STEADY_S
    assert sum("and nobody disturbs: it has two speeds" in line for line in said) == 1


@pytest.mark.parametrize(("slow_us", "who"), [(122, "in use by make"), (150, "")])
def test_a_slow_baseline_is_not_believed_where_somebody_disturbs_or_it_is_too_slow(
    store: Store, pauses: list[float], slow_us: float, who: str
) -> None:
    study, said = swept(store, simulated.truth, 12), list[str]()
    with pytest.raises(InfrastructureError, match=f"{who}.*nobody is crowned"):
        finals_of(store, study, two_speeds(slow_us), said, who)
    assert not any("two speeds" in line for line in said)
    assert sum(pauses) >= 60 * config.PATIENCE_MINUTES / 2


def test_a_machine_that_stays_disturbed_confirms_nothing_and_what_was_confirmed_stays(
    store: Store, pauses: list[float]
) -> None:
    study = swept(store, simulated.truth, 12)
    before = confirmed(store, study, executor(simulated.truth))
    by = Spoilt(FakeLine(simulated.truth, deviations=DEVIATIONS), lambda job: True)
    with pytest.raises(InfrastructureError, match=r"SDPA is slow, after a wait of .* nobody is crowned") as raised:
        confirmed(store, study, by)
    assert "\n" not in str(raised.value)
    assert 60 * config.PATIENCE_MINUTES <= sum(pauses) < 120 * config.PATIENCE_MINUTES
    assert standings.finals(store, study) == before


def test_a_finalist_beside_which_the_baseline_is_off_is_out_and_nobody_else_is(
    store: Store, pauses: list[float]
) -> None:
    """The baseline takes what it should where that variant is not loaded: it slows the clock, or the baseline."""
    study = swept(store, simulated.truth, 12)
    best = standings.best(store, study)
    assert best is not None
    cheat = best.raced or best.outcome.artifact
    assert cheat is not None
    digest = getattr(cheat, "digest", cheat)
    by = Spoilt(
        FakeLine(simulated.truth, deviations=DEVIATIONS), lambda job: digest in {each.digest for each in job.artifacts}
    )
    found = confirmed(store, study, by)
    assert found.revoked == (best.entry.number,)
    assert not pauses
    assert "measure.witness" in (queries.trial(store, study, best.entry.number).revoked_reason or "")
    assert found.standing is not None
    honest = {each.digest: each.log_ratio.mid for each in found.standing.finalists}
    truths = {
        each.digest: math.log(simulated.truth(each.variant).us / 100)
        for each in found.finalists
        if each.digest in honest
    }
    assert honest == pytest.approx(truths, abs=0.01)
