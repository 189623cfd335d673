"""Calls of one kind, served by a variant: an empty result, and a launch. A model's host waits for nothing else of ours,
so it is done in few steps."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

Forward = Callable[[tuple[Tensor, ...]], Tensor | None]
"""From the tensors of a call the result; None where the variant does not take them."""
Launch = Callable[..., bool]
"""Of the tensors and then of the result, one by one: one forward, on the current stream. False where the variant does
not take them; RuntimeError where it broke the device."""
Empty = Callable[[], Tensor]
"""An empty result, on the current device."""


class Tally:
    """Calls that one variant has served, or torch for one reason."""

    __slots__ = ("calls",)

    def __init__(self) -> None:
        self.calls = 0


def forward(launch: Launch, empty: Empty, tally: Tally, index: int | None) -> Forward:
    """What is served is counted in `tally`. `index`: of the GPU; None: a CPU."""
    current: Any = _no_gpu if index is None else torch._C._cuda_getDevice

    def serve(tensors: tuple[Tensor, ...]) -> Tensor | None:
        if current() != index:
            with torch.cuda.device(index):
                return serve(tensors)
        out = empty()
        if not launch(*tensors, out):
            return None
        tally.calls += 1
        return out

    return serve


def _no_gpu() -> None:
    """A CPU is always the current one."""


def empty_as(like: Tensor) -> Empty:
    """What makes empty tensors that lie as this one does, on its device, which is the current one. For that the code
    which torch.compile generates calls what takes fewer steps than torch.empty_like. It has no public name: where it
    goes, or makes something else, torch's own function is called."""
    size, stride = tuple(like.shape), tuple(like.stride())
    made = partial(torch.empty_strided, size, stride, dtype=like.dtype, device=like.device)
    guards: Any = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    quick = getattr(guards, f"_empty_strided_{like.device.type}", None)
    if quick is None:
        return made
    quick = partial(quick, size, stride, like.dtype)
    return quick if _makes(quick, like) else made


def _makes(quick: Empty, expected: Tensor) -> bool:
    try:
        found = quick()
    except (RuntimeError, TypeError, AttributeError):
        return False
    of_both = [(each.shape, each.stride(), each.dtype, each.device) for each in (found, expected)]
    return of_both[0] == of_both[1]
