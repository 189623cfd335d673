"""What a package's op of torch takes, read from the op's `signature.py`: its schema, and options as numbers.

The signature is stated once, by the function `arguments` of that file, its names and annotations. torch_op.h reads what
is written here.
"""

import inspect
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, NamedTuple, get_args

STRICT, COPIES, FIRST_BIT = 1, 2, 2
"""What is so of a call, for the argument `how`, and the first bit of the options; torch_op.h has the same numbers."""


class Option(NamedTuple):
    """An option that variants are tuned with."""

    name: str
    values: tuple[object, ...]
    """What it may be, the usual first; none: a number."""
    usual: float | None = None
    """Of a number that need not be said."""

    @property
    def bits(self) -> int:
        """Of `how`."""
        return (len(self.values) - 1).bit_length() if self.values else 0

    @property
    def schema(self) -> str:
        """As an argument of torch's, by name."""
        if not self.values:
            return f"float {self.name}" if self.usual is None else f"float {self.name}={self.usual}"
        usual = self.values[0]
        return f"bool {self.name}=False" if usual is False else f'str {self.name}="{usual}"'


class Stated:
    """The signature of an op, taken apart."""

    def __init__(self, signature: ModuleType) -> None:
        """Of the module `signature.py` of an op."""
        self.required: tuple[str, ...] = signature.TENSORS
        self.more: tuple[str, ...] = signature.MORE
        self.beside: tuple[str, ...] = signature.BESIDE
        self._usual: Mapping[str, float] = getattr(signature, "NUMBERS", {})
        self.python = inspect.signature(signature.arguments, eval_str=True)
        self.options = tuple(self._option(name) for name in signature.OPTIONS)
        self.names = frozenset(signature.OPTIONS)
        self.added = frozenset(
            name for name, each in self.python.parameters.items() if each.kind is inspect.Parameter.KEYWORD_ONLY
        )
        """Arguments that torch's own function has not."""
        optional = [f"Tensor? {name}=None" for name in (*self.more, *self.beside)]
        tensors = [f"Tensor {name}" for name in self.required]
        numbers = [f"float {each.name}" for each in self.options if not each.values]
        self.numbers = len(numbers)
        """Of the options."""
        self.schema = ", ".join([*tensors, "int how", *numbers, *optional])
        """Arguments of the ops of the library."""
        by_name = [*(each.schema for each in self.options), "bool strict=False", "bool copies=False"]
        self.by_name = ", ".join([*tensors, *optional, "*", *by_name])
        """The same for people, with options by name."""

    def _option(self, name: str) -> Option:
        if name in self._usual:
            return Option(name, (), self._usual[name])
        parameter = self.python.parameters[name]
        if parameter.annotation is bool:
            return Option(name, (False, True))
        words = get_args(parameter.annotation)
        return Option(name, words if isinstance(words[0], str) else ())

    def how(self, options: Mapping[str, Any]) -> tuple[int, list[float]]:
        """Options as a sum of what is so, and those that are numbers. Raises ValueError for an unknown word."""
        how, at, numbers = 0, FIRST_BIT, []
        for each in self.options:
            if not each.values:
                numbers.append(options[each.name] if each.usual is None else options.get(each.name, each.usual))
            elif each.name in options:
                value = options[each.name]
                if value not in each.values:
                    raise ValueError(f"{each.name} is {value!r}, expected {' or '.join(map(str, each.values))}")
                how |= each.values.index(value) << at
            at += each.bits
        return how, numbers

    def said(self, how: int, numbers: Sequence[float]) -> dict[str, Any]:
        """Options again, without those that are as usual."""
        found: dict[str, Any] = {}
        at, left = FIRST_BIT, list(numbers)
        for each in self.options:
            if not each.values:
                if (number := left.pop(0)) != each.usual:
                    found[each.name] = number
            elif place := how >> at & ((1 << each.bits) - 1):
                found[each.name] = each.values[place]
            at += each.bits
        return found

    def given(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        """Of a call's tensors those that need not be there, None for one that is not."""
        more = tensors[len(self.required) :]
        return (*more, *[None] * (len(self.more) - len(more)))
