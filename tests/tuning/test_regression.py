"""An export beside the best of today: what is slower, and what has moved."""

import json
from contextlib import nullcontext
from pathlib import Path

import pytest

from autotuner.serve.best import earlier_of, export
from autotuner.store import Store
from autotuner.tuning import regression
from autotuner.tuning.finals import standings
from autotuner.tuning.regression import Earlier, Regression
from autotuner.values.errors import InputError
from autotuner.values.ratio import Speedup
from autotuner.views.again_tables import findings
from tests.helpers import simulated
from tests.helpers.driven import swept
from tests.helpers.fake_line import FakeLine
from tests.helpers.inline_executor import InlineExecutor


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
    return found._replace(confirmed=(Speedup(low=speedup * 0.999, mid=speedup, high=speedup * 1.001),))


def _race(
    store: Store, study: str, earlier: Earlier, monkeypatch: pytest.MonkeyPatch, baseline_us: float = 100.0
) -> Regression:
    class Workbench:
        """What it needs of one, on the fake device."""

        conditions = simulated.conditions()

        def executor(self) -> InlineExecutor:
            return InlineExecutor(FakeLine(simulated.truth, baseline_us, noise=0.0005))

    monkeypatch.setattr("autotuner.tuning.workbench.of_study", lambda _: Workbench())
    return regression.race(store, study, earlier, 40, lambda _: nullcontext())


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
    gone = _race(store, study, earlier._replace(baselines=("cudnn",), confirmed=(None,)), monkeypatch)
    assert gone.found
    assert findings(gone)[1].endswith("cudnn then, fake now.")


def test_what_does_not_go_together_is_refused(
    store: Store, study: str, earlier: Earlier, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="on another"):
        _race(store, study, earlier._replace(device="another"), monkeypatch)
    with pytest.raises(InputError, match="not in the cache, and sources or compiler have changed"):
        _race(store, study, earlier._replace(artifact="0" * 64), monkeypatch)
    document = json.loads((tmp_path / "last.json").read_text())
    (tmp_path / "last.json").write_text(json.dumps({**document, "trial": 99}))
    with pytest.raises(InputError, match="damaged"):
        earlier_of(tmp_path / "last.json")
