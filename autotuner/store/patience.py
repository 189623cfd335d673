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

    def keep_on(
        self,
        attempt: Callable[[], T],
        done: type[BaseException] | None = None,
        failed: Callable[[], None] = lambda: None,
    ) -> T | None:
        """Attempts it until the store takes it, or patience ends: then what failed last is raised.

        `done`: what a later attempt raises where an earlier one, whose connection was lost, has come through; None is
        returned then. `failed` is called once, after the first failure.
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
            except Exception as error:
                if failed_at is None or done is None or not isinstance(error, done):
                    raise
                return None


class _HasPatience(Protocol):
    patience: Patience


class _OfDatabase(Protocol):
    @property
    def database(self) -> Any: ...


O = TypeVar("O", bound=_OfDatabase)  # noqa: E741


def patient(method: Callable[Concatenate[O, P], T]) -> Callable[Concatenate[O, P], T]:
    """Has a method, one transaction of its `database`, wait as that one's patience says. It may be attempted twice."""

    @wraps(method)
    def waits(self: O, /, *args: P.args, **kwargs: P.kwargs) -> T:
        patience: Patience = self.database.patience
        # without `done` it is what the method returned
        return patience.keep_on(lambda: method(self, *args, **kwargs))  # type: ignore[return-value]

    return waits
