"""The call before, recognised when it comes again.

A model calls one function for every layer, mostly with tensors that lie as those of the layer before. What guards the
graphs of torch.compile compares all of that in one step of C++, where Python needs one for each property. torch has no
public name for it: where it goes, no call is recognised, and each is looked up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

import torch
from torch import Tensor

from autotuner.inference.plans import OFFSET, Plan
from autotuner.ops.tensors import Tensors

_threads = torch.get_num_threads


class Before:
    """A call, and how it was answered."""

    __slots__ = ("_count", "_guards", "_names", "_order", "_scalars", "_threads", "named", "options", "plan")

    def __init__(
        self, plan: Plan, args: Sequence[Any], kwargs: Mapping[str, Any], tensors: Tensors, options: Mapping[str, Any]
    ) -> None:
        """`tensors` and `options`: what the op's function of arguments makes of the others."""
        self.plan, self.options = plan, options
        self.named: dict[str, Any] | None = None
        """Of a call that torch serves: its keyword arguments to torch's own function; None where that cannot be called
        in this way, but our function that torch computes."""
        self._names = tuple(name for name, value in kwargs.items() if isinstance(value, Tensor))
        self._scalars = {name: value for name, value in kwargs.items() if name not in self._names}
        given = self._given(args, kwargs)
        self._count, self._threads = len(given), None if tensors[0].is_cuda else _threads()
        self._order = [place for each in tensors for place, one in enumerate(given) if one is each]
        self._guards = _guards(given) if len(self._order) == len(tensors) else None

    def comes_again(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Whether a call is answered in the same way, for all that its arguments say. Whether torch has to see an op is
        asked elsewhere."""
        guards = self._guards
        if guards is None:
            return False
        given, named = args, kwargs
        if self._names:
            given = self._given(args, kwargs)
            named = {name: value for name, value in kwargs.items() if name not in self._names}
        try:
            return (
                len(given) == self._count
                and guards.check(*given)
                and named == self._scalars
                and (self._threads is None or _threads() == self._threads)
                and not any(map(OFFSET, given))
            )
        except (TypeError, RuntimeError, ValueError):  # an argument that cannot be compared
            return False

    def tensors(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Tensors:
        """The op's tensors in such a call."""
        given = self._given(args, kwargs) if self._names else args
        return tuple([given[place] for place in self._order])

    def named_without(self, names: Set[str]) -> dict[str, Any] | None:
        """Its keyword arguments but those of these names; None where a tensor is among them."""
        return None if self._names else {name: each for name, each in self._scalars.items() if name not in names}

    def _given(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Sequence[Any]:
        return (*args, *map(kwargs.get, self._names))


def _guards(given: Sequence[Any]) -> Any:
    """None where torch cannot guard these. A view that does not begin where its memory does is not guarded either: how
    it lies to the others decides too."""
    if not all(type(each) is Tensor for each in given) or any(map(OFFSET, given)):
        return None
    try:
        guards: Any = torch._C._dynamo.guards
        return guards.TensorGuards(
            *given,
            dynamic_dims_sizes=[[*each.shape] for each in given],
            dynamic_dims_strides=[[*each.stride()] for each in given],
        )
    except (AttributeError, TypeError, RuntimeError, SystemError):
        return None
