"""Whether tensors lie as those of an earlier call did. A package of torch has a copy of this file: it imports nothing
of autotuner.

A model calls one function for every layer, mostly with tensors that lie as those of the layer before. What guards the
graphs of torch.compile compares all of that in one step of C++, where Python needs one for each property. torch has no
public name for it: where it goes, no tensors are alike, and each call is looked up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

SIZES, LAST = 256, 3
"""Sizes of the first tensor for which something is remembered, at most, then all is forgotten; and of each the last."""
_threads, _offset = torch.get_num_threads, Tensor.storage_offset
Remembered = TypeVar("Remembered")


class Recent(dict[object, tuple[Remembered, ...]]):
    """What is remembered of calls, by the sizes of their first tensor: a model is asked for one batch and then for
    another, and its layers may take turns with two kinds of calls."""

    __slots__ = ()

    def of(self, first: Any) -> tuple[Remembered, ...]:
        """The latest one first."""
        try:
            return self.get(first.shape, ())
        except (AttributeError, TypeError, RuntimeError):  # it has no sizes, or they are no key
            return ()

    def put_first(self, first: Tensor, each: Remembered) -> None:
        """Remembers it, or that it was asked for."""
        if len(self) >= SIZES:
            self.clear()
        others = (one for one in self.of(first) if one is not each)
        self[first.shape] = (each, *others)[:LAST]


class Alike:
    """How tensors lie: their sizes, strides, element types and devices, whether a gradient is wanted, and on a CPU
    torch's number of threads. None of them is kept."""

    __slots__ = ("_begin_anywhere", "_check", "_threads", "is_guarded")

    def __init__(self, tensors: Sequence[Any]) -> None:
        guards = _guards(tensors)
        self.is_guarded: bool = guards is not None
        """Whether any tensors can be like these."""
        self._check = guards.check if self.is_guarded else _never
        self._threads = None if tensors[0].is_cuda else _threads()
        self._begin_anywhere = self.is_guarded and all(map(_fills_its_memory, tensors))

    def are(self, given: Sequence[Any]) -> bool:
        """Whether these lie so too. What is going on around a call is not asked: a tracer, or autograd's forward
        mode. Raises TypeError where these are more or less of them."""
        return (
            self._check(*given)
            and (self._threads is None or _threads() == self._threads)
            and (self._begin_anywhere or not any(map(_offset, given)))
        )


def _never(*_: Any) -> bool:
    return False


def _fills_its_memory(each: Tensor) -> bool:
    """What lies so is no part of a larger tensor, where others begin that have to do with it."""
    return each.numel() * each.element_size() == each.untyped_storage().nbytes()


def _guards(tensors: Sequence[Any]) -> Any:
    """None where torch cannot guard these. A view that does not begin where its memory does is not guarded either: how
    it lies to the others decides too."""
    if not all(type(each) is Tensor for each in tensors) or any(map(_offset, tensors)):
        return None
    try:
        guards: Any = torch._C._dynamo.guards
        return guards.TensorGuards(
            *tensors,
            dynamic_dims_sizes=[[*each.shape] for each in tensors],
            dynamic_dims_strides=[[*each.stride()] for each in tensors],
        )
    except (AttributeError, TypeError, RuntimeError, SystemError):
        return None
