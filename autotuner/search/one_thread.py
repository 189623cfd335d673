"""BLAS on one thread, for matrices so small that more threads make it many times slower."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from threadpoolctl import ThreadpoolController

P = ParamSpec("P")
T = TypeVar("T")


def single_threaded(method: Callable[P, T]) -> Callable[P, T]:
    """The method with BLAS on one thread."""

    @functools.wraps(method)
    def limited(*arguments: P.args, **named: P.kwargs) -> T:
        with _libraries().limit(limits=1):
            return method(*arguments, **named)

    return limited


@functools.cache
def _libraries() -> Any:
    return ThreadpoolController().select(user_api="blas")
