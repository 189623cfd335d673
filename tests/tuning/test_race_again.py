"""One variant timed again: who wins is decided by how wide a tie is in the study."""

import math

import pytest

from autotuner.spaces.space import SpaceFile
from autotuner.store import Store, trials
from autotuner.tuning import race_again
from autotuner.tuning.finals import standings
from autotuner.values.conditions import TIE, Conditions
from autotuner.values.errors import InputError, StoreError
from autotuner.values.outcome import Heat
from tests.helpers import simulated
from tests.helpers.driven import swept
from tests.helpers.fake_line import FakeLine, Truth
from tests.helpers.inline_executor import InlineExecutor


def _on_the_fake_device(
    monkeypatch: pytest.MonkeyPatch, backend: FakeLine, conditions: Conditions | None = None
) -> None:
    class Workbench:
        """What a race needs of one, on the fake device."""

        def __init__(self, file: SpaceFile) -> None:
            self.conditions = conditions or simulated.conditions()

        def executor(self) -> InlineExecutor:
            return InlineExecutor(backend)

    monkeypatch.setattr(race_again, "Workbench", Workbench)


@pytest.mark.parametrize(("us", "winner"), [(99.0, "the variant"), (101.0, "the baseline fake"), (99.8, None)])
def test_a_winner_is_outside_the_tie_band_of_the_study(
    store: Store, monkeypatch: pytest.MonkeyPatch, us: float, winner: str | None
) -> None:
    """SDPA takes 100 us. By A/A races with 1 % between two loads a tie is 2 % wide."""
    backend = FakeLine(lambda _: Truth(us=us), noise=0.0005)

    _on_the_fake_device(monkeypatch, backend)
    study = swept(store, InlineExecutor(backend), 1)
    before = race_again.race(store, study, itself=False)
    assert before.tie == TIE
    assert before.winner == winner
    assert before.speedup.mid == pytest.approx(100 / us, rel=1e-3)

    best = standings.best(store, study)
    us_of = [(each,) * 40 for each in (100.0, 101.0)]
    aa = Heat(
        entrants=(best.outcome.artifact.digest,) * 2,
        baselines=("fake",),
        us=tuple((each,) for each in us_of),
        baseline_us=(us_of[0],),
    )
    store.record_heat(study, "aa", aa)
    after = race_again.race(store, study, itself=False)
    assert after.tie == pytest.approx(0.02, rel=0.01)
    assert after.winner is None
    assert after.speedup.mid == pytest.approx(100 / us, rel=1e-3)


def test_any_trial_with_a_latency_is_timed_again_and_no_other(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = FakeLine(simulated.truth, noise=0.0005)
    _on_the_fake_device(monkeypatch, backend)
    study = swept(store, InlineExecutor(backend), 12)
    best = standings.best(store, study)
    listed = trials.listed(store, study)
    other = next(each for each in listed if each.verdict.has_latency and each.number != best.entry.number)
    again = race_again.race(store, study, itself=False, trial=other.number)
    assert again.trial == other.number
    assert again.variant.digest == other.variant
    assert again.speedup.mid == pytest.approx(math.exp(-(other.objective or 0.0)), rel=0.01)
    assert race_again.race(store, study, itself=False).trial == best.entry.number

    wrong = next(each for each in listed if not each.verdict.has_latency)
    with pytest.raises(InputError, match=f"trial {wrong.number} .* has no latency"):
        race_again.race(store, study, itself=False, trial=wrong.number)
    store.revoke(study, other.number, "the finals saw it fail")
    with pytest.raises(InputError, match="was revoked: the finals saw it fail"):
        race_again.race(store, study, itself=False, trial=other.number)
    with pytest.raises(StoreError, match="no recorded trial 99"):
        race_again.race(store, study, itself=False, trial=99)
