"""A sampler of another package, found by its entry point."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from autotuner.search.samplers import SAMPLERS
from autotuner.serve.best import FORMATS
from autotuner.store import Store
from autotuner.tuning.finals import standings
from autotuner.tuning.run.driver import Budget, Driver
from autotuner.tuning.run.plan import Plan
from autotuner.values.errors import InputError
from tests.helpers import simulated
from tests.helpers.inline_executor import InlineExecutor

PLUGINS = Path(__file__).parent.parent / "plugins"


def test_it_searches_by_its_name(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    # other tests of this process may have put it there
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place != str(PLUGINS)])
    monkeypatch.setattr(SAMPLERS, "_loaded", {})
    assert "downhill" not in SAMPLERS
    monkeypatch.syspath_prepend(PLUGINS)
    assert [name for name in SAMPLERS if name in ("evolution", "downhill")] == ["evolution", "downhill"]
    plan = Plan(simulated.space(), simulated.DEVICE, simulated.conditions(), sampler="downhill")
    driver = Driver(store, InlineExecutor(simulated.backend()), plan)
    driver.run(Budget(trials=15))
    variants = [outcome.variant for outcome in store.judged_numbers(driver.name).values()]
    assert len({variant.digest for variant in variants}) == 15
    assert standings.best(store, driver.name) is not None


def test_what_is_not_there_or_cannot_be_loaded_is_said_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(PLUGINS)
    with pytest.raises(InputError, match=r"no sampler 'mine'; there are evolution, random, .*, downhill"):
        SAMPLERS.chosen("mine")
    with pytest.raises(InputError, match=r"the sampler 'broken' of another package .*cannot be loaded"):
        SAMPLERS.chosen("broken")
    assert FORMATS.chosen("flags").filename == "best.flags"
    with pytest.raises(InputError, match=r"no export format 'yaml'; there are json, .*flags"):
        FORMATS.chosen("yaml")
