"""How calls are answered, found out once for each kind of call and remembered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from autotuner.inference.variants import Ready
from autotuner.ops.alike import shared
from autotuner.ops.forward import Forward, Tally
from autotuner.values.problem import Problem

REMEMBERED = 4096
"""Kinds of calls whose answer is remembered, at most; then all are forgotten."""
SCALARS = frozenset({bool, int, float, str, type(None)})
"""Types of arguments that are parts of a key as they are."""

_threads = torch.get_num_threads

Kind = tuple[object, ...]


class Plan:
    """How a kind of call is answered."""

    __slots__ = ("copies", "forward", "may_come_again", "name", "problem", "tally", "variant", "why")

    def __init__(self, why: str, variant: Ready | None = None, problem: Problem | None = None) -> None:
        self.why, self.variant, self.problem = why, variant, problem
        self.name = "" if variant is None else str(variant.of.variant)
        self.tally = Tally()
        """Of the variant, else of why there is none."""
        self.copies = False
        self.may_come_again = True
        """A call of its kind can be recognised by what guards graphs."""
        self.forward: Forward | None = None
        """By the variant; from the first call on."""


class Plans:
    """The plans of the kinds that were seen."""

    def __init__(self) -> None:
        self._kept: dict[Kind, Plan] = {}
        self._last: tuple[Kind, Plan | None] = (), None

    def of(self, kind: Kind) -> Plan | None:
        """None of a kind that was not seen, and of one that cannot be remembered."""
        try:
            last, same = self._last
            if kind == last:  # in a model mostly so, and no sizes are hashed
                return same
            plan = self._kept.get(kind)
        except (TypeError, RuntimeError, ValueError):  # an option that cannot be a key, or not be compared
            return None
        if plan is not None:
            self._last = kind, plan
        return plan

    def keep(self, kind: Kind, plan: Plan) -> None:
        """Nothing of a kind that cannot be a key."""
        if len(self._kept) >= REMEMBERED:
            self._kept.clear()
        try:
            self._kept[kind] = plan
        except TypeError:
            return


def kind_of(given: Sequence[object], named: Mapping[str, object]) -> Kind:
    """All that decides how a call with these arguments is answered, as a key. Of a tensor that is how it lies, and its
    class where that is one of its own; never what it holds: what is decided by content, such as a mask, no variant
    serves. Raises RuntimeError or AttributeError for nested tensors, which have no sizes."""
    if len(given) == 3 and SCALARS.issuperset(map(type, named.values())):  # what models call most, in one piece
        found = _of_three(*given)
        if found is not None:
            return (*found, *named, *named.values()) if named else found
    key: list[object] = [_threads(), *named]
    within: int | torch.SymInt = 0
    for each in (*given, *named.values()):
        if isinstance(each, Tensor):
            key += (each.shape, each.stride(), each.dtype, each.device)
            within += each.storage_offset()
            if type(each) is not Tensor:
                key.append(type(each))
        else:
            key.append(each)
    if within:
        key += shared([each for each in (*given, *named.values()) if isinstance(each, Tensor)])
    return tuple(key)


def _of_three(q: Any, k: Any, v: Any) -> Kind | None:
    """None for what is not of torch's own class, or begins within its memory."""
    if type(q) is not Tensor or type(k) is not Tensor or type(v) is not Tensor:
        return None
    if q.storage_offset() or k.storage_offset() or v.storage_offset():
        return None
    return (
        _threads(),
        q.shape,
        q.stride(),
        q.dtype,
        q.device,
        k.shape,
        k.stride(),
        k.dtype,
        k.device,
        v.shape,
        v.stride(),
        v.dtype,
        v.device,
    )
