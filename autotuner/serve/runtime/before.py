"""A call of before, recognised when it comes again."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from .alike import Alike, OtherLengths, Ranges, never
from .forward import Forward, Tally


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
