"""A study done again: each of the four levels holds, or is found not to."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from autotuner.store import Store, queries, whole_study
from autotuner.tuning.finals.retrials import Retrials
from autotuner.tuning.reproduced import LEVELS, reproduce
from autotuner.values.variant import Variant
from autotuner.values.verdict import Verdict
from tests.helpers import simulated
from tests.helpers.fake_line import Truth
from tests.helpers.simulated_finals import DEFAULT, confirmed, executor, swept

Truths = Callable[[Variant], Truth]


def _us(variant: Variant) -> float:
    """The default variant is the fastest by far."""
    return 45.0 if variant.digest == DEFAULT else 50.0


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> whole_study.Data:
    """Of a study that has finals."""
    with Store.open(str(tmp_path_factory.mktemp("here") / "studies.db")) as store:
        study = swept(store, lambda variant: Truth(us=_us(variant)), 12)
        confirmed(store, study, executor(lambda variant: Truth(us=_us(variant))))
        found: whole_study.Data = json.loads(json.dumps(whole_study.data_of(store, study)))
        return found


@pytest.fixture
def copied(data: whole_study.Data, tmp_path: Path) -> Iterator[Store]:
    """A store with a copy of it."""
    with closing(Store.open(str(tmp_path / "elsewhere.db"))) as store:
        whole_study.add(store, data)
        yield store


def _found(store: Store, truth: Truths) -> dict[str, str]:
    study = queries.resolve_study(store)
    trials = Retrials(store, study, simulated.conditions(), executor(truth), {"os": "none"})
    levels = reproduce(trials, DEFAULT)
    assert tuple(each.level for each in levels) == LEVELS
    return {each.level: each.found for each in levels}


def test_what_is_as_it_was_is_reproduced_on_every_level(copied: Store) -> None:
    assert _found(copied, lambda variant: Truth(us=_us(variant))) == dict.fromkeys(LEVELS, "reproduced")


def test_a_best_that_is_slower_here_differs_in_order_and_ratio(copied: Store) -> None:
    found = _found(copied, lambda variant: Truth(us=60.0 if variant.digest == DEFAULT else 50.0))
    assert found == {"bytes": "reproduced", "gate": "reproduced", "order": "differs", "ratio": "differs"}


def test_a_best_that_is_wrong_with_fresh_seeds_differs_at_the_gate(copied: Store) -> None:
    def wrong(variant: Variant) -> Truth:
        return Truth(us=50.0, fault=Verdict.INCORRECT) if variant.digest == DEFAULT else Truth(us=50.0)

    found = _found(copied, wrong)
    assert (found["bytes"], found["gate"], found["ratio"]) == ("reproduced", "differs", "not checked")


def test_a_best_that_cannot_be_built_leaves_the_rest_unchecked(copied: Store) -> None:
    def broken(variant: Variant) -> Truth:
        return Truth(fault=Verdict.BUILD_FAILED) if variant.digest == DEFAULT else Truth(us=50.0)

    assert [*_found(copied, broken).values()] == ["differs", *("not checked",) * 3]
