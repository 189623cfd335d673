"""Waiting for a store that is locked, full or gone: what was to be written is kept in memory and written later."""

import time
from collections.abc import Callable
from typing import TypeVar

from autotuner.values.errors import DiskFullError, StoreUnavailableError

PAUSE_S = 1.0
"""Seconds between two attempts."""
SAY_EVERY_S = 60.0
"""Seconds between two lines about a store that stays away."""

T = TypeVar("T")


class Patience:
    """For how long a process waits for its store, and whom it tells."""

    def __init__(self) -> None:
        self.seconds = 0.0
        """Of one wait; 0: the first failure is raised."""
        self.say: Callable[[str], None] = lambda line: None
        """Hears a line for a person when the store goes, one a minute, and one when it is back."""
        self.pulse: Callable[[], None] = lambda: None
        """Called after each failed attempt."""

    def keep_on(self, attempt: Callable[[], T], failed: Callable[[], None] = lambda: None) -> T:
        """What `attempt` returns, once the store takes it. When patience ends, what failed last is raised.

        `failed` is called once, after the first failure.
        """
        since: float | None = None
        said = 0.0
        while True:
            try:
                found = attempt()
            except (StoreUnavailableError, DiskFullError) as error:
                now = time.monotonic()
                if since is None:
                    since = now
                    failed()
                if now - since >= self.seconds:
                    raise
                if now == since or now - said >= SAY_EVERY_S:
                    said = now
                    for_s = f" for {now - since:.0f} s" if now > since else ""
                    self.say(f"keeps what it has and waits for the store{for_s}: {error}")
                self.pulse()
                time.sleep(PAUSE_S)
            else:
                if since is not None:
                    self.say(f"the store is back after {time.monotonic() - since:.0f} s")
                return found
