"""The claims of a kernel.toml about the machine code: a search for one that never ends is the claim's fault."""

import signal
import time

import pytest

from autotuner.forge.family import Effect
from autotuner.gate import checks
from autotuner.gate.checks import broken_effect

CODE = "a" * 60 + "b"


def test_a_search_that_never_ends_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "SEARCH_S", 0.2)
    before = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)[1]
    started = time.process_time()
    for effect in (Effect(contains="(a+)+$", reason="slow"), Effect(lacks="(a+)+$", reason="slow")):
        said = broken_effect([effect], CODE)
        assert said is not None
        assert "the search for /(a+)+$/ did not end within 0.2 s" in said
    assert time.process_time() - started < 20
    assert (signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)[1]) == before


def test_a_search_that_ends_says_what_it_finds() -> None:
    assert broken_effect([Effect(contains="a+b", reason="there")], CODE) is None
    assert broken_effect([Effect(contains="c", reason="not there")], CODE) == "the machine code lacks /c/: not there"
    assert broken_effect([Effect(lacks="b", reason="there")], CODE) == "the machine code contains /b/: there"
