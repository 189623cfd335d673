"""A call of before, recognised when it comes again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

from torch import Tensor

from autotuner.inference.plans import Plan
from autotuner.ops.alike import Alike
from autotuner.ops.tensors import Tensors


class Before:
    """A call, and how it was answered."""

    __slots__ = ("_alike", "_names", "_order", "_scalars", "named", "options", "plan")

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
        self._order = [place for each in tensors for place, one in enumerate(given) if one is each]
        self._alike = Alike(given) if len(self._order) == len(tensors) else None

    @property
    def is_guarded(self) -> bool:
        """Whether it can come again at all."""
        return self._alike is not None and self._alike.is_guarded

    def comes_again(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Whether a call is answered in the same way, for all that its arguments say. Whether torch has to see an op is
        asked elsewhere."""
        if self._alike is None:
            return False
        try:
            if not self._names:
                return self._alike.are(args) and kwargs == self._scalars
            named = {name: value for name, value in kwargs.items() if name not in self._names}
            return named == self._scalars and self._alike.are(self._given(args, kwargs))
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
