"""A call of before, recognised when it comes again: whether tensors lie as those of an earlier call did.

A model calls one function for every layer, mostly with tensors that lie as those of the layer before. What guards the
graphs of torch.compile compares all of that in one step of C++, where Python needs one for each property. It compares
what torch's dispatcher would do with a tensor, so it also sees autocast, tracers and transforms around the call. torch
has no public name for it: where it goes, or sees less, no tensors are alike, and each call is looked up.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

import torch
from torch import Tensor

from .forward import Forward, Tally

SIZES, LAST = 256, 3
"""Sizes of the first tensor for which something is remembered, at most, then all is forgotten; and of each the last."""
PLAIN = (Tensor, torch.nn.Parameter)
"""Classes that leave torch's functions to torch."""
_threads, _grad_is_on, _offset, _address = (
    torch.get_num_threads,
    torch.is_grad_enabled,
    Tensor.storage_offset,
    Tensor.data_ptr,
)
Remembered = TypeVar("Remembered")
Lies = Sequence[Sequence[int | None]]
"""Of each tensor its sizes, or its strides."""
Ranges = Sequence[tuple[Sequence[int], Sequence[int]]]
"""Sizes of a tensor, from the least to the largest."""


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
    """How tensors lie: their sizes, strides, element types and devices, which are views of one memory, whether a
    gradient is wanted, and on a CPU torch's number of threads. None of them is kept."""

    __slots__ = ("_check", "_grad_is_off", "_shared", "_threads", "are", "is_guarded")

    def __init__(self, tensors: Sequence[Any]) -> None:
        guards = _guards(tensors)
        self.is_guarded: bool = guards is not None
        """Whether any tensors can be like these."""
        self._check = guards.check if self.is_guarded else never
        self._threads = None if tensors[0].is_cuda else _threads()
        # Guards do not see whether torch records; where it would, the call of before was made while it did not.
        self._grad_is_off = any(getattr(each, "requires_grad", False) for each in tensors)
        # What fills its memory is no part of a larger tensor, where others begin that have to do with it.
        whole = (each.numel() * each.element_size() == each.untyped_storage().nbytes() for each in tensors)
        alone = not self.is_guarded or all(whole)
        self._shared = None if alone else shared(tensors)
        """None where sizes and strides leave no room for another tensor."""
        checked = self._threads is None and self._shared is None and not self._grad_is_off
        self.are: Callable[..., bool] = self._check if checked else self._are
        """Whether tensors, given one by one, lie so too, with no autocast, tracer or transform around them that was not
        around those. Raises TypeError where these are more or less of them."""

    def _are(self, *given: Any) -> bool:
        return (
            self._check(*given)
            and not (self._grad_is_off and _grad_is_on())
            and (self._threads is None or _threads() == self._threads)
            and (self._shared is None or shared(given) == self._shared)
        )


class OtherLengths:
    """Calls that torch serves however the tensors lie and whatever the sizes behind the first one's are, but for some
    sizes of the second: a cache that grows leaves Q as it is. Like Alike, with no more around the call."""

    __slots__ = ("_check", "_grad_is_off", "_ranges", "_second", "_single", "are")

    def __init__(self, tensors: Sequence[Tensor], second: int, asked_for: Ranges) -> None:
        """`second`: its place among the tensors."""
        sizes = [[*tensors[0].shape], *([None] * each.dim() for each in tensors[1:])]
        self._check = _guarding(tensors, sizes, [[None] * each.dim() for each in tensors]).check
        self._grad_is_off = any(each.requires_grad for each in tensors)
        self._second, self._single = second, {tuple(low) for low, high in asked_for if low == high}
        self._ranges = [(low, high) for low, high in asked_for if low != high]
        self.are: Callable[..., bool] = self._are if asked_for or self._grad_is_off else self._check
        """Whether these are the tensors of such a call."""

    def leaves(self, sizes: Sequence[int]) -> bool:
        """Whether torch serves the call with a second tensor of these sizes."""
        inside = self._ranges and any(is_between(low, sizes, high) for low, high in self._ranges)
        return not inside and sizes not in self._single

    def _are(self, *given: Any) -> bool:
        return (
            self._check(*given) and not (self._grad_is_off and _grad_is_on()) and self.leaves(given[self._second].shape)
        )


def is_between(low: Sequence[int], sizes: Sequence[int], high: Sequence[int]) -> bool:
    """Whether each size lies between these, both included."""
    return len(low) == len(sizes) and all(
        least <= size <= most for least, size, most in zip(low, sizes, high, strict=True)
    )


def shared(tensors: Sequence[Tensor]) -> tuple[bool, ...]:
    """Of each tensor but the first, whether it is a view of the same memory as the one before, from another place on:
    to an op that may be another problem. Nothing where none is."""
    offsets = [*map(_offset, tensors)]
    if not any(offsets):
        return ()
    places, size = [*map(_address, tensors)], tensors[0].element_size()
    steps = zip(places, places[1:], offsets, offsets[1:], strict=False)
    found = tuple([after - place == (later - offset) * size != 0 for place, after, offset, later in steps])
    return found if any(found) else ()


def never(*_: Any) -> bool:
    return False


def _guards(tensors: Sequence[Any]) -> Any:
    """None where torch cannot guard these."""
    if not all(type(each) in PLAIN for each in tensors):
        return None
    try:
        if not _autocast_is_seen():
            return None
        return _guarding(tensors, [[*each.shape] for each in tensors], [[*each.stride()] for each in tensors])
    except (AttributeError, TypeError, RuntimeError, SystemError):
        return None


def _guarding(tensors: Sequence[Tensor], sizes: Lies, strides: Lies) -> Any:
    """Of tensors with these; None: any."""
    guards: Any = torch._C._dynamo.guards
    return guards.TensorGuards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides)


@cache
def _autocast_is_seen() -> bool:
    """Whether guards see what is around a call: found out with autocast, which they see as they do the rest."""
    one = torch.empty(1)
    guards = _guarding([one], [[1]], [[1]])
    with torch.autocast("cpu", torch.bfloat16):
        return not guards.check(one)


class Before:
    """A call, and how it was answered. It keeps no tensor."""

    __slots__ = (
        "_are",
        "_names",
        "_order",
        "_others",
        "_places",
        "_scalars",
        "forward",
        "in_order",
        "is_beside",
        "is_guarded",
        "is_torchs",
        "named",
        "tally",
    )

    def __init__(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], tensors: Sequence[Tensor], is_beside: bool = False
    ) -> None:
        """`tensors`: what the op's function of arguments makes of the others. `is_beside`: there is a mask beside what
        says the same."""
        self.is_beside = is_beside
        self.forward: Forward | None = None
        """By a variant."""
        self.tally = Tally()
        """Of the reason, where torch serves it."""
        self.is_torchs = False
        """Whether torch's own function takes such a call as it is made."""
        self.named: Mapping[str, Any] | None = None
        """Of a call that torch's own function serves, its tensors alone without names: what that is told by name. It is
        told nothing that it would do anyway, which costs it less."""
        self._names = tuple(name for name, value in kwargs.items() if isinstance(value, Tensor))
        self._scalars = {name: value for name, value in kwargs.items() if name not in self._names}
        places = [place for place, value in enumerate(args) if isinstance(value, Tensor)]
        self._places = None if len(places) == len(args) else places
        """Where tensors are given without a name; None: all are."""
        self._others = [value for place, value in enumerate(args) if place not in places]
        given = self._given(args, kwargs)
        self._order = [place for each in tensors for place, one in enumerate(given) if one is each]
        self.in_order = not self._names and self._places is None and self._order == [*range(len(args))]
        """Whether the op's tensors are what is given without a name, in that order."""
        alike = Alike(given) if len(self._order) == len(tensors) else None
        self.is_guarded = alike is not None and alike.is_guarded
        """Whether it can come again at all."""
        self._are = never if alike is None else alike.are

    def forget_lengths(self, tensors: Sequence[Tensor], asked_for: Ranges) -> bool:
        """From now on it is the same call whatever the sizes behind the first tensor's are, but for a second one of
        sizes that are asked for. Whether it is so: not where it is of such sizes itself."""
        given = sorted(zip(self._order, tensors, strict=True), key=lambda each: each[0])
        if self._order[0] != 0 or len(given) < 2:
            return False
        other = OtherLengths([each for _, each in given], self._order[1], asked_for)
        if not other.leaves(tensors[1].shape):
            return False
        self._are = other.are
        return True

    def comes_again(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Whether a call is answered in the same way, but for what guards do not see (surroundings.py)."""
        try:
            if not self._names:
                if self._places is None:
                    return self._are(*args) and kwargs == self._scalars
                return self._are(*self._given(args, kwargs)) and self._is_said(args) and kwargs == self._scalars
            named = {name: value for name, value in kwargs.items() if name not in self._names}
            return named == self._scalars and self._are(*self._given(args, kwargs)) and self._is_said(args)
        except (AttributeError, IndexError, RuntimeError, TypeError, ValueError):  # it cannot be compared, or is absent
            return False

    def _is_said(self, args: Sequence[Any]) -> bool:
        """Whether what is given without a name, and is no tensor, is the same."""
        if self._places is None:
            return True
        return len(args) == len(self._places) + len(self._others) and self._others == [
            value for place, value in enumerate(args) if place not in self._places
        ]

    def tensors(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Tensor, ...]:
        """The op's tensors in such a call, in whatever order they are given."""
        given = self._given(args, kwargs)
        return tuple([given[place] for place in self._order])

    def _given(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Sequence[Any]:
        alone = args if self._places is None else [args[place] for place in self._places]
        return (*alone, *map(kwargs.get, self._names)) if self._names else alone
