"""Calls of one kind: the empty result, the launch, the device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
import torch

from autotuner.serve.runtime.forward import Tally, empty_as, forward

CPU = torch.device("cpu")
GUARDS: Any = torch._C._dynamo.guards
LIE = [
    torch.empty(2, 3, 5, 64),
    torch.empty(2, 5, 3, 64, dtype=torch.bfloat16).transpose(1, 2),
    torch.empty(1, 1, 7, 8, device="meta", dtype=torch.float16),
]


@pytest.mark.parametrize("quick", [None, lambda *_: torch.empty(1), lambda size: torch.empty(size)])
def test_torchs_own_function_is_called_where_the_quick_one_went_or_does_something_else(
    quick: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GUARDS, "_empty_strided_cpu", quick)
    made = empty_as(LIE[1], CPU)()
    assert (made.shape, made.stride(), made.dtype) == (LIE[1].shape, LIE[1].stride(), LIE[1].dtype)


def test_what_the_variant_takes_is_counted_and_the_device_is_the_tensors() -> None:
    """It runs on device 1, and device 0 is the current one."""
    current, launched = [0], list[tuple[tuple[int, ...], int, int]]()

    @contextmanager
    def on_the_other() -> Iterator[None]:
        current.append(1)
        yield
        current.pop()

    def on(index: int) -> AbstractContextManager[None] | None:
        return None if current[-1] == index else on_the_other()

    def launch(addresses: tuple[int, ...], stream: int) -> bool:
        launched.append((addresses, stream, current[-1]))
        return stream == 8

    tensors, tally, streams = (torch.ones(4), torch.ones(4)), Tally(), [8, 0]
    serve = forward(launch, empty_as(tensors[0], CPU), tally, 1, on, lambda index: streams.pop(0))
    found = serve(tensors)
    assert found is not None
    assert launched == [((*(each.data_ptr() for each in tensors), found.data_ptr()), 8, 1)]
    assert (tally.calls, current) == (1, [0])
    assert serve(tensors) is None  # the variant has refused
    assert tally.calls == 1
