"""Waiting for a store that is locked, full or gone: what was to be written is kept in memory and written later."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from autotuner.values.errors import DiskFullError, StoreUnavailableError

PAUSE_S = 1.0
"""Seconds between two attempts."""

P = ParamSpec("P")
T = TypeVar("T")


class Patience:
    """For how long a process waits for its store, and whom it tells."""

    def __init__(self) -> None:
        self.seconds = 0.0
        """Of one wait; 0: the first failure is raised."""
        self.listen: Callable[[str, float], None] = lambda why, since_s: None
        """Hears after each failed attempt why it failed, and for how many seconds that has gone on."""

    def keep_on(self, attempt: Callable[[], T], failed: Callable[[], None] = lambda: None) -> T:
        """What `attempt` returns, once the store takes it. When patience ends, what failed last is raised.

        `failed` is called once, after the first failure.
        """
        failed_at: float | None = None
        while True:
            try:
                return attempt()
            except (StoreUnavailableError, DiskFullError) as error:
                now = time.monotonic()
                if failed_at is None:
                    failed_at = now
                    failed()
                if now - failed_at >= self.seconds:
                    raise
                self.listen(str(error), now - failed_at)
                time.sleep(PAUSE_S)

    def keep_on_until(self, done: type[Exception], attempt: Callable[[], T]) -> T | None:
        """Likewise. After a failure, which may have been of the connection alone, an attempt that raises `done` shows
        that an earlier one came through: then it returns None."""
        failed = False

        def fail() -> None:
            nonlocal failed
            failed = True

        def again() -> T | None:
            try:
                return attempt()
            except done:
                if not failed:
                    raise
                return None

        return self.keep_on(again, fail)


class _HasPatience(Protocol):
    patience: Patience


class _OfDatabase(Protocol):
    @property
    def database(self) -> Any: ...


Owner = TypeVar("Owner", bound=_OfDatabase)


def patient(method: Callable[Concatenate[Owner, P], T]) -> Callable[Concatenate[Owner, P], T]:
    """Has a method, one transaction of its `database`, wait as that one's patience says. It may be attempted twice."""

    @wraps(method)
    def waits(self: Owner, /, *args: P.args, **kwargs: P.kwargs) -> T:
        patience: Patience = self.database.patience
        return patience.keep_on(lambda: method(self, *args, **kwargs))

    return waits
