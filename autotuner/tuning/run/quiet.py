"""Waiting: for a device that another run has, and, where the user wants that, for a quiet machine.

Nothing else waits. What disturbs a race widens its interval (race/blocks.py).
"""

import time
from collections.abc import Callable

from pydantic import Field

from autotuner.run.executor import BEAT_S, Beat
from autotuner.values.model import Model

SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 5.0
"""Seconds between two looks. Between these a pause is a quarter of the time waited so far."""


class Waiting(Model):
    """The run waits for a quiet machine, or for a device that another run has."""

    detail: str
    since_s: float = Field(description="how long already, seconds")


class Waited(Model):
    """The wait for a quiet machine is over, and the run goes on."""

    waited_s: float
    detail: str = Field(default="", description='who disturbs still, as there was no more time to wait; "": nobody')


def pause(waited_s: float, within_s: float, beat: Beat) -> None:
    """Sleeps until the next look, or until it has waited for `within_s` seconds, and beats meanwhile."""
    until = time.monotonic() + min(LONGEST_PAUSE_S, max(SHORTEST_PAUSE_S, waited_s / 4), within_s - waited_s)
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(left, BEAT_S))
        beat()


def wait_until_quiet(
    who: Callable[[], str], within_s: float, listen: Callable[[Waiting | Waited], None], beat: Beat
) -> None:
    """Waits until nobody is seen who disturbs, for `within_s` seconds at most. `who` says who does, in words; "" where
    nobody can be seen."""
    began = time.monotonic()
    detail = who() if within_s > 0 else ""
    while detail and (waited := time.monotonic() - began) < within_s:
        listen(Waiting(detail=detail, since_s=waited))
        pause(waited, within_s, beat)
        detail = who()
    if within_s > 0:
        listen(Waited(waited_s=time.monotonic() - began, detail=detail))
