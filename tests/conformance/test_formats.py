"""What every export format must do, ours and one of another package, by the command: what cannot be written is refused
in one line."""

import re
from pathlib import Path

import pytest

from autotuner.devices import DEVICES
from autotuner.search.samplers import SAMPLERS
from autotuner.serve.best import FORMATS
from autotuner.tuning import checkup
from autotuner.values.errors import InputError
from tests.helpers.hostile import Case, faults, run, stores

PLUGINS = Path(__file__).parent.parent / "plugins"
NAMES = (*sorted(FORMATS), "flags")


@pytest.fixture(autouse=True)
def _other_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """The format `flags` and the sampler `downhill` are found."""
    monkeypatch.setattr(FORMATS, "_loaded", {})
    monkeypatch.syspath_prepend(PLUGINS)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("target", ["/dev/null", "/dev/full", "pipe", "loop", "mine/below", "no/such/folder/it"])
def test_what_cannot_be_written_is_refused_in_one_line(name: str, target: str) -> None:
    store, _ = stores()
    ended = run(Case({"studies.db": store, "mine": b"mine"}, ("export", "--format", name, "--out", target)))
    assert (ended.code, ended.err.count("\n"), faults(ended)) == (2, 1, []), ended


def test_what_is_not_there_or_cannot_be_loaded_is_said_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"no sampler 'mine'; there are evolution, random, .*, downhill"):
        SAMPLERS.chosen("mine")
    with pytest.raises(InputError, match=r"the sampler 'broken' of another package .*cannot be loaded"):
        SAMPLERS.chosen("broken")
    monkeypatch.setattr(DEVICES, "_loaded", {})
    broken = "the device 'broken' of another package .*cannot be loaded"
    with pytest.raises(InputError, match=broken):
        DEVICES.chosen("broken")
    assert {"cpu", "cuda", "other_cpu"} <= dict(DEVICES.items()).keys() - {"broken"}, "it stops no other"
    assert any(re.match(broken, each.said) for each in checkup.findings("studies.db"))
    with pytest.raises(InputError, match=r"no export format 'yaml'; there are json, .*flags"):
        FORMATS.chosen("yaml")
