"""The enumeration of a space: parameter by parameter, each constraint applied as soon as all its names are bound."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic_core import PydanticCustomError

from autotuner.spaces.expression import ExpressionError
from autotuner.spaces.fields import Facts
from autotuner.spaces.space_file import SpaceFile
from autotuner.values.validation import refuse, show, suggestion

Array = NDArray[Any]
Columns = dict[str, Array]

MAX_POINTS = 20_000_000
"""Enumeration stops, with an error, when more partial or whole points than this survive."""

_CHUNK = 1 << 20


class Enumeration:
    """The work of `Space.enumerate`: tables of value indices, an int16 column a parameter, -1 where it is absent."""

    def __init__(self, file: SpaceFile, facts: Facts) -> None:
        self.file = file
        self.values = {name: parameter.array for name, parameter in file.parameters.items()}
        self.facts = [{**facts, **problem.facts()} for problem in file.problems]
        self.removed = [0] * len(file.constraints)
        self.applied: list[int] = []
        self._check_facts(facts)

    def _check_facts(self, facts: Facts) -> None:
        for name, value in facts.items():
            if name in self.values:
                raise refuse("the device already has a fact of this name; expected another", f"parameters.{name}")
            if not isinstance(value, int | str):
                raise TypeError(f"the fact {name} is {value!r}, not an integer, a string or a truth value")
        known = {*self.values, *self.facts[0]}
        for key, expression in self.file.expressions.items():
            above = self.file.steps_before(key)
            for name in sorted(expression.names - known - above):
                hint = suggestion(name, known | above)
                raise refuse(f"{name} is no parameter and no fact of this device or the problem{hint}", key)

    def holds(self, key: str, columns: Columns, absent: bool) -> Array:
        """Where the expression under `key` holds, bool (n,); `absent` where a parameter it names does not exist."""
        expression = self.file.expressions[key]
        named = {name: columns[name] for name in self.values if name in expression.names}
        count = len(next(iter(columns.values()), np.zeros(1)))
        present = np.ones(count, dtype=np.bool_)
        for column in named.values():
            present &= column >= 0
        result = np.full(count, absent)
        subset = {name: column[present] for name, column in named.items()} or {"": result}
        try:
            result[present] = expression.holds(self.values, subset, self.facts)
        except ExpressionError as error:
            raise refuse(f"{show(expression.text)}: {error.reason}", key) from None
        return result

    def existing(self, name: str, columns: Columns) -> Array:
        """At which rows of the table a parameter exists, bool (n,)."""
        if self.file.parameters[name].when is None:
            return np.ones(_height(columns), dtype=np.bool_)
        return self.holds(f"parameters.{name}.when", columns, absent=False)

    def bind(self, name: str, columns: Columns) -> Columns:
        """The table with one more parameter: each row once for every value, or once where it does not exist."""
        exists = self.existing(name, columns)
        copies = np.where(exists, len(self.values[name]), 1)
        row = np.repeat(np.arange(len(exists)), copies)
        value = np.arange(len(row)) - np.repeat(np.cumsum(copies) - copies, copies)
        value = np.where(exists[row], value, -1).astype(np.int16)
        return {**{other: column[row] for other, column in columns.items()}, name: value}

    def completions(self, columns: Columns, rest: Sequence[str]) -> int:
        """How many raw points arise from the rows of a table by binding the parameters `rest`, in that order.

        Only the parameters that decide whether another one exists are expanded; the others multiply.
        """
        deciding = {name for other in rest for name in self.file.controllers(other)}
        table = self._grouped({name: column for name, column in columns.items() if name in deciding}, _height(columns))
        for name in rest:
            if name in deciding:
                table = self.bind(name, table)
            else:
                table["weight"] = table["weight"] * np.where(self.existing(name, table), len(self.values[name]), 1)
        return int(table["weight"].sum())

    def _grouped(self, columns: Columns, height: int) -> Columns:
        """The distinct rows, with how often each occurs in a column "weight" of Python integers."""
        if not columns:
            return {"weight": np.array([height], dtype=object)}
        sizes = tuple(len(self.values[name]) + 1 for name in columns)
        codes = np.ravel_multi_index(tuple(column + 1 for column in columns.values()), sizes)
        codes, counts = np.unique(codes, return_counts=True)
        digits = np.unravel_index(codes, sizes)
        table = {name: (digit - 1).astype(np.int16) for name, digit in zip(columns, digits, strict=True)}
        return {**table, "weight": counts.astype(object)}

    def binding_order(self) -> tuple[str, ...]:
        """The parameters, those of the constraint with the fewest combinations of values first, controllers earlier."""
        groups = [self.closure(self.file.rule(i).names) for i in range(len(self.file.constraints))]
        bound: dict[str, None] = {}
        while groups:
            group = min(
                groups, key=lambda names: math.prod(len(self.values[name]) for name in names if name not in bound)
            )
            groups.remove(group)
            bound |= dict.fromkeys(group)
        return tuple(bound | dict.fromkeys(self.file.order))

    def closure(self, names: Iterable[str]) -> list[str]:
        """The parameters among `names` and those that decide about them, in the order of the file's `order`."""
        wanted = {*names}
        for name in reversed(self.file.order):
            wanted |= self.file.controllers(name) if name in wanted else set()
        return [name for name in self.file.order if name in wanted]

    def run(self) -> Columns:
        """The valid points. Binds one parameter after the other and applies each constraint as soon as it can be."""
        columns: Columns = {}
        order = self.binding_order()
        for position, name in enumerate(order):
            unbound = order[position + 1 :]
            ready = [i for i in range(len(self.file.constraints)) if not self.file.rule(i).names & {*unbound}]
            due = [i for i in ready if i not in self.applied]
            self.applied += due
            columns = self._step(name, columns, due, unbound)
        return columns

    def _step(self, name: str, columns: Columns, due: Sequence[int], unbound: Sequence[str]) -> Columns:
        """Bind one parameter and apply the constraints that are due, a chunk of rows at a time."""
        step = max(1, _CHUNK // len(self.values[name]))
        pieces: list[Columns] = []
        last = 0
        for start in range(0, _height(columns), step):
            piece = self.bind(name, _select(columns, slice(start, start + step)))
            for i in due:
                keep = self.holds(f"{self.file.constraint_key(i)}.expression", piece, absent=True)
                if not keep.all():
                    self.removed[i] += self.completions(_select(piece, ~keep), unbound)
                    piece, last = _select(piece, keep), i
            pieces.append(piece)
            self._check_height(sum(map(_height, pieces)), name)
        if not any(map(_height, pieces)):
            reason = self.file.constraints[last].reason
            raise refuse(
                f"no valid point: this constraint removed the last ones ({reason})", self.file.constraint_key(last)
            )
        return {other: np.concatenate([piece[other] for piece in pieces]) for other in pieces[0]}

    def _check_height(self, height: int, name: str) -> None:
        if height > MAX_POINTS:
            message = f"more than {MAX_POINTS} points with {name} bound; expected fewer values or stronger constraints"
            raise refuse(message, "parameters")

    def alone(self, i: int) -> int | None:
        """The raw points that constraint i forbids by itself; None when it names too many or has no value there."""
        columns: Columns = {}
        named = self.closure(self.file.rule(i).names)
        if math.prod(len(self.values[name]) for name in named) > _CHUNK:
            return None
        for name in named:
            columns = self.bind(name, columns)
        try:
            broken = ~self.holds(f"{self.file.constraint_key(i)}.expression", columns, absent=True)
        except PydanticCustomError:
            return None
        rest = [name for name in self.file.order if name not in named]
        return (
            self.completions(_select(columns, broken), rest) if named else int(broken[0]) * self.completions({}, rest)
        )


def _height(columns: Columns) -> int:
    """Rows of a table; a table of no parameters has one, the empty point."""
    return len(next(iter(columns.values()), np.zeros(1)))


def _select(columns: Columns, rows: Array | slice) -> Columns:
    return {name: column[rows] for name, column in columns.items()}
