"""What was found is timed again: one variant, and an export beside the best of today."""

import json
import math
from contextlib import nullcontext
from pathlib import Path

import pytest

from autotuner.serve.best import earlier_of, export
from autotuner.spaces.space import SpaceFile
from autotuner.store import Store, queries
from autotuner.tuning import again
from autotuner.tuning.again import Regression, findings
from autotuner.tuning.finals import standings
from autotuner.values.conditions import TIE, Conditions
from autotuner.values.errors import InputError, StoreError
from autotuner.values.outcome import Heat
from autotuner.values.ratio import Speedup
from autotuner.values.sweep import Earlier
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

    monkeypatch.setattr(again, "Workbench", Workbench)


@pytest.mark.parametrize(("us", "winner"), [(99.0, "the variant"), (101.0, "the baseline fake"), (99.8, None)])
def test_a_winner_is_outside_the_tie_band_of_the_study(
    store: Store, monkeypatch: pytest.MonkeyPatch, us: float, winner: str | None
) -> None:
    """SDPA takes 100 us. By A/A races with 1 % between two loads a tie is 2 % wide."""
    backend = FakeLine(lambda _: Truth(us=us), noise=0.0005)

    _on_the_fake_device(monkeypatch, backend)
    study = swept(store, InlineExecutor(backend), 1)
    before = again.race(store, study, itself=False)
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
    after = again.race(store, study, itself=False)
    assert after.tie == pytest.approx(0.02, rel=0.01)
    assert after.winner is None
    assert after.speedup.mid == pytest.approx(100 / us, rel=1e-3)


def test_any_trial_with_a_latency_is_timed_again_and_no_other(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = FakeLine(simulated.truth, noise=0.0005)
    _on_the_fake_device(monkeypatch, backend)
    study = swept(store, InlineExecutor(backend), 12)
    best = standings.best(store, study)
    listed = queries.listed(store, study)
    other = next(each for each in listed if each.verdict.has_latency and each.number != best.entry.number)
    once_more = again.race(store, study, itself=False, trial=other.number)
    assert once_more.trial == other.number
    assert once_more.variant.digest == other.variant_digest
    assert once_more.speedup.mid == pytest.approx(math.exp(-(other.objective or 0.0)), rel=0.01)
    assert again.race(store, study, itself=False).trial == best.entry.number

    wrong = next(each for each in listed if not each.verdict.has_latency)
    with pytest.raises(InputError, match=f"trial {wrong.number} .* has no latency"):
        again.race(store, study, itself=False, trial=wrong.number)
    store.revoke(study, other.number, "the finals saw it fail")
    with pytest.raises(InputError, match="was revoked: the finals saw it fail"):
        again.race(store, study, itself=False, trial=other.number)
    with pytest.raises(StoreError, match="no recorded trial 99"):
        again.race(store, study, itself=False, trial=99)


# An export beside the best of today -----------------------------------------------------------------------------------


@pytest.fixture
def study(store: Store) -> str:
    line = FakeLine(simulated.truth, noise=0.0005)
    return swept(store, InlineExecutor(line), 12)


@pytest.fixture
def earlier(store: Store, study: str, tmp_path: Path) -> Earlier:
    """Of an export of the study, as its finals would confirm it."""
    export(store, study, [], tmp_path / "last.json")
    found = earlier_of(tmp_path / "last.json")
    best = standings.best(store, study)
    assert found.confirmed == (None,)
    speedup = best.entry.speedup.mid
    return found.model_copy(update={"confirmed": (Speedup(low=speedup * 0.999, mid=speedup, high=speedup * 1.001),)})


def _race(
    store: Store, study: str, earlier: Earlier, monkeypatch: pytest.MonkeyPatch, baseline_us: float = 100.0
) -> Regression:
    class Workbench:
        """What it needs of one, on the fake device."""

        conditions = simulated.conditions()

        def executor(self) -> InlineExecutor:
            return InlineExecutor(FakeLine(simulated.truth, baseline_us, noise=0.0005))

    monkeypatch.setattr("autotuner.tuning.workbench.of_study", lambda _: Workbench())
    return again.regress(store, study, earlier, 40, lambda _: nullcontext())


def test_a_night_without_a_change_has_no_finding(
    store: Store, study: str, earlier: Earlier, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = _race(store, study, earlier, monkeypatch)
    assert found.same_build
    assert not found.found
    assert found.speedup.mid == pytest.approx(1, abs=0.002)
    assert len(findings(found)) == 1


def test_a_slower_best_and_a_moved_baseline_are_told_apart(
    store: Store, study: str, earlier: Earlier, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = _race(store, study, earlier, monkeypatch, baseline_us=110.0)
    assert (moved.slower, [each.moved for each in moved.baselines]) == (False, [True])
    assert "fake takes 1.10" in findings(moved)[1]
    store.revoke(study, earlier.trial, "a check that is new")
    slower = _race(store, study, earlier, monkeypatch)
    assert (slower.slower, [each.moved for each in slower.baselines]) == (True, [False])
    assert slower.trial != earlier.trial
    assert "slower by more than a tie" in findings(slower)[0]


def test_another_choice_of_baseline_has_moved(
    store: Store, study: str, earlier: Earlier, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = _race(store, study, earlier.model_copy(update={"baselines": ("cudnn",), "confirmed": (None,)}), monkeypatch)
    assert gone.found
    assert findings(gone)[1].endswith("cudnn then, fake now.")


def test_what_does_not_go_together_is_refused(
    store: Store, study: str, earlier: Earlier, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="on another"):
        _race(store, study, earlier.model_copy(update={"device": "another"}), monkeypatch)
    with pytest.raises(InputError, match="not in the cache, and sources or compiler have changed"):
        _race(store, study, earlier.model_copy(update={"artifact": "0" * 64}), monkeypatch)
    document = json.loads((tmp_path / "last.json").read_text())
    (tmp_path / "last.json").write_text(json.dumps({**document, "trial": 99}))
    with pytest.raises(InputError, match="damaged"):
        earlier_of(tmp_path / "last.json")
