"""Waiting for a store that has gone: what is said of it, and when it ends."""

import time

import pytest

from autotuner.store.patience import Patience
from autotuner.values.errors import StoreUnavailableError


class Clock:
    """A clock that goes on by what is slept, and a store that is gone until a moment of it."""

    def __init__(self, gone_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self._gone_s = 0.0, gone_s
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(time, "sleep", self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.now += seconds

    def ask(self) -> str:
        if self.now < self._gone_s:
            raise StoreUnavailableError("the server does not answer")
        return "an answer"


def test_a_line_when_it_goes_one_a_minute_and_one_when_it_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, patience = Clock(150.0, monkeypatch), Patience()
    said: list[str] = []
    pulses: list[float] = []
    failed: list[float] = []
    patience.seconds, patience.say, patience.pulse = float("inf"), said.append, lambda: pulses.append(clock.now)
    for _ in range(2):
        assert patience.keep_on(clock.ask, lambda: failed.append(clock.now)) == "an answer"
    assert said == [
        "keeps what it has and waits for the store: the server does not answer",
        "keeps what it has and waits for the store for 60 s: the server does not answer",
        "keeps what it has and waits for the store for 120 s: the server does not answer",
        "the store is back after 150 s",
    ]
    assert pulses == [float(second) for second in range(150)]
    assert failed == [0.0]


@pytest.mark.parametrize("seconds", [0.0, 10.0])
def test_it_ends_and_raises_what_failed_last(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    clock, patience = Clock(150.0, monkeypatch), Patience()
    patience.seconds = seconds
    with pytest.raises(StoreUnavailableError, match="does not answer"):
        patience.keep_on(clock.ask)
    assert clock.now == seconds
