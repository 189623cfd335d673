"""A call of before, recognised when it comes again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from autotuner.inference.plans import Plan
from autotuner.ops.alike import Alike
from autotuner.ops.tensors import Tensors


class Before:
    """A call, and how it was answered. It keeps no tensor."""

    __slots__ = ("_alike", "_order", "_scalars", "in_order", "named", "names", "options", "plan")

    def __init__(
        self, plan: Plan, args: Sequence[Any], kwargs: Mapping[str, Any], tensors: Tensors, options: Mapping[str, Any]
    ) -> None:
        """`tensors` and `options`: what the op's function of arguments makes of the others."""
        self.plan = plan
        self.options = {name: value for name, value in options.items() if not isinstance(value, Tensor)}
        self.named: Mapping[str, Any] | None = None
        """Of a call that torch's own function serves: what that is told by name, but tensors. It is told nothing that
        it would do anyway, which costs it less."""
        self.names = tuple(name for name, value in kwargs.items() if isinstance(value, Tensor))
        """Of the tensors that are given by name."""
        self._scalars = {name: value for name, value in kwargs.items() if name not in self.names}
        given = self._given(args, kwargs)
        self._order = [place for each in tensors for place, one in enumerate(given) if one is each]
        self.in_order = not self.names and self._order == [*range(len(args))]
        """Whether the op's tensors are what is given without a name, in that order."""
        self._alike = Alike(given) if len(self._order) == len(tensors) else None

    @property
    def is_guarded(self) -> bool:
        """Whether it can come again at all."""
        return self._alike is not None and self._alike.is_guarded

    def comes_again(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Whether a call is answered in the same way, but for what guards do not see (ops/surroundings.py)."""
        if self._alike is None:
            return False
        try:
            if not self.names:
                return self._alike.are(*args) and kwargs == self._scalars
            named = {name: value for name, value in kwargs.items() if name not in self.names}
            return named == self._scalars and self._alike.are(*self._given(args, kwargs))
        except (TypeError, RuntimeError, ValueError):  # an argument that cannot be compared
            return False

    def tensors(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Tensors:
        """The op's tensors in such a call, in whatever order they are given."""
        given = self._given(args, kwargs)
        return tuple([given[place] for place in self._order])

    def told(self, kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
        """What torch's own function, where it serves such a call, is told by name."""
        assert self.named is not None
        return {**self.named, **{name: kwargs[name] for name in self.names}}

    def _given(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Sequence[Any]:
        return (*args, *map(kwargs.get, self.names))
